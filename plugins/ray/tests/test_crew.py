"""Who sits where, and what tells each worker its place."""

from __future__ import annotations

from typing import Any

import pytest

from nlpkernel_ray.crew import Crew


def crew(*facts: dict[str, Any]) -> Crew:
    made = [
        {"host": each["node"], "address": f"10.0.0.{each['node']}", "visible": {}, **each} for each in facts
    ]
    return Crew.of([object()] * len(made), made)  # type: ignore[list-item]


def test_the_workers_of_a_machine_have_numbers_in_a_row() -> None:
    made = crew({"node": "2"}, {"node": "1"}, {"node": "2"})
    assert [(w.rank, w.host, w.local, w.locals) for w in made.workers] == [
        (0, "2", 0, 2),
        (1, "2", 1, 2),
        (2, "1", 0, 1),
    ]
    assert (made.nodes, made.address) == (2, "10.0.0.2")
    assert str(made.workers[2]) == "worker 2 on 1 (10.0.0.1)"


def test_on_one_machine_the_workers_meet_on_the_loopback_interface() -> None:
    assert crew({"node": "7"}, {"node": "7"}).address == "127.0.0.1"


def test_the_variables_are_those_that_a_worker_recognises() -> None:
    launchers = pytest.importorskip("nlpkernel_torchdist.launchers")
    made = crew({"node": "2"}, {"node": "1"}, {"node": "2"})
    place = launchers.place(made.environment(4711, "tiny-ab", 3)(made.workers[1]))
    assert place == launchers.Place(
        launcher="Ray",
        rank=1,
        world=3,
        local_rank=1,
        local_world=2,
        host="10.0.0.2",
        port=4711,
        run_id="tiny-ab",
        attempt=3,
    )
    alone = crew({"node": "1"}, {"node": "1"})
    assert launchers.place(alone.environment(1, "x", 0)(alone.workers[0])).one_machine


def test_each_worker_of_a_machine_sees_the_gpus_of_all_in_their_order() -> None:
    name = "CUDA_VISIBLE_DEVICES"
    made = crew(
        {"node": "1", "visible": {name: "3"}},
        {"node": "2", "visible": {name: "0,1"}},
        {"node": "1", "visible": {name: "1"}},
    )
    shown = [made.environment(1, "x", 0)(worker).get(name) for worker in made.workers]
    assert shown == ["3,1", "3,1", "0"]
    none = crew({"node": "1", "visible": {name: ""}}, {"node": "1"})
    assert name not in none.environment(1, "x", 0)(none.workers[0])
