"""A component whose state does not come back is refused at the first save, by name, and nothing is written."""

from __future__ import annotations

import pytest
import torch

from nlpkernel.engine.equality import value_difference
from nlpkernel.errors import CheckpointError

COUNTING = """
import time
from nlpkernel import component, hookimpl


@component
class Counting:
    def __attrs_post_init__(self):
        self.seen, self.best = 0, [0.5]

    @hookimpl
    def subscribe(self): ...

    @hookimpl
    def update_applied(self):
        self.seen += 1
        self.best.append(float("nan"))

    @hookimpl
    def component_state(self):
        return self

    def state(self):
        return {STATE}

    def load_state(self, state):
        LOAD
"""
WHOLE = '{"seen": self.seen, "best": self.best}', 'self.seen, self.best = state["seen"], state["best"]'
BAD = {
    "does nothing": (WHOLE[0], "pass", "saved, and after loading"),
    "loses a name": (WHOLE[0], 'self.seen = state["seen"]', "['best']"),
    "changes a type": (
        WHOLE[0],
        'self.seen, self.best = float(state["seen"]), state["best"]',
        "['seen']: 0 and 0.0",
    ),
    "raises": (WHOLE[0], 'self.best = state["bset"]', "load_state raised KeyError: 'bset'"),
}


def run(bench, state, load):
    (bench.folder / "own.py").write_text(
        COUNTING.replace("{STATE}", state).replace("LOAD", load), encoding="utf-8"
    )
    own = {"use": str(bench.folder / "own.py") + ":Counting"}
    return bench.run(own, train={"steps": 6, "batch": 8}, checkpoint=bench.use("Shelf", every=3))


@pytest.mark.parametrize(("state", "load", "text"), BAD.values(), ids=list(BAD))
def test_a_state_that_does_not_come_back_is_refused_at_the_first_save(bench, state, load, text):
    ran = run(bench, state, load)
    assert isinstance(ran.error, CheckpointError)
    (problem,) = ran.error.problems
    assert problem.code == "NK507"
    assert "component/monitor[0] does not come back" in problem.message
    assert text in problem.message
    assert bench.shelf(ran.folder).list() == []


def test_a_state_that_comes_back_is_left_as_it_was(bench):
    ran = run(bench, *WHOLE)
    assert ran.error is None
    tree = bench.shelf(ran.folder).load().tree
    assert tree["component/monitor[0]/seen"].value == 6
    assert len(tree["component/monitor[0]/best"].value) == 7


def test_what_follows_the_clock_is_compared_with_nothing(bench):
    clock = '{"clock/now": time.monotonic(), "seen": self.seen}'
    assert run(bench, clock, 'self.seen = state["seen"]').error is None


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), "1 of 1 elements differ, by at most 0"),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), "1 of 2 elements differ, by at most 0.5"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "1 of 2 elements differ"),
        (
            torch.tensor([1.0]),
            torch.tensor([1.0], dtype=torch.float64),
            "torch.float32 (1,) and torch.float64 (1,)",
        ),
        (1, 1.0, "1 and 1.0"),
        (True, 1, "True and 1"),
        ([1], (1,), "[1] and (1,)"),
        ([1], [1, 2], "[1]: only in one of the two"),
        ({"a": {"b": 0.0}}, {"a": {"b": -0.0}}, "['a']: ['b']: 0.0 and -0.0"),
    ],
)
def test_values_that_differ_are_told_apart(a, b, text):
    assert value_difference(a, b) == text


@pytest.mark.parametrize(
    "value", [torch.tensor([float("nan"), 1.0]), float("nan"), {"a": [1, (2.5, None)]}, torch.tensor(3)]
)
def test_a_value_is_equal_to_itself(value):
    assert value_difference(value, value) is None


def test_a_state_that_moves_after_the_first_save_is_asked_for_then(bench):
    late = COUNTING.replace("self.seen += 1", "self.seen += run.progress.step >= 4").replace(
        'self.best.append(float("nan"))', "..."
    )
    late = late.replace("def update_applied(self)", "def update_applied(self, run)")
    (bench.folder / "own.py").write_text(
        late.replace("{STATE}", '{"seen": self.seen}').replace("LOAD", "pass"), encoding="utf-8"
    )
    own = {"use": str(bench.folder / "own.py") + ":Counting"}
    ran = bench.run(own, train={"steps": 6, "batch": 8}, checkpoint=bench.use("Shelf", every=3))
    assert "NK507" in str(ran.error)
    assert [info.step for info in bench.shelf(ran.folder).list()] == [3]
