"""A save asks the communicator for what it keeps elsewhere, before the state is read."""

from __future__ import annotations

import pytest
import torch

from nlpkernel.events import Evaluated


def test_a_version_holds_what_the_communicator_has_gathered_before_it(bench):
    ran = bench.run(
        train={"steps": 4},
        checkpoint=bench.use("Shelf", every=2),
        communicator=bench.use("Elsewhere"),
    )
    assert ran.error is None
    assert (ran.folder / "gathered").read_text() == "24"
    for name, step in (("step-0002", 2.0), ("step-0004", 4.0)):
        tree = bench.shelf(ran.folder).load(name).tree
        found = {path: leaf.value for path, leaf in tree.items() if path.endswith("/elsewhere")}
        assert found
        assert all(torch.equal(value, torch.tensor(step)) for value in found.values())


def test_terms_that_an_update_tells_are_those_of_all_workers_and_are_not_merged(bench):
    train = {"steps": 4, "log": {"every": 2}, "evaluate": {"every": 10}}
    alone = bench.run(name="alone", train=train)
    ran = bench.run(train=train, communicator=bench.use("Several"))
    assert ran.error is None
    assert ran.logged("loss") == pytest.approx([3 * loss for loss in alone.logged("loss")], rel=1e-6)


def test_counts_are_taken_again_when_a_worker_goes_during_an_evaluation(bench):
    train = {"steps": 2}
    alone = bench.run(name="alone", train=train)
    ran = bench.run(train=train, communicator=bench.use("Several"))
    assert ran.error is None
    assert ran.of(Evaluated)[-1].metrics == alone.of(Evaluated)[-1].metrics


def test_a_worker_that_has_no_part_in_versions_saves_none(bench):
    ran = bench.run(
        train={"steps": 6}, checkpoint=bench.use("Shelf", every=2), communicator=bench.use("Several")
    )
    assert ran.error is None
    assert [info.step for info in bench.shelf(ran.folder).list()] == [2]
