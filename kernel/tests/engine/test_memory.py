"""What a run holds for its best value."""

from __future__ import annotations

import math

import pytest

from nlpkernel.engine.memory import Memory


@pytest.mark.parametrize(
    ("way", "values", "best", "steps"),
    [
        ("min", [3.0, 2.0, 2.0, 4.0], 2.0, [0, 1]),
        ("max", [3.0, 2.0, 3.0, 4.0], 4.0, [0, 3]),
        ("min", [math.nan, 2.0, math.nan, 1.0], 1.0, [1, 3]),
        ("max", [math.nan, math.nan], None, []),
        ("min", [None, 5.0], 5.0, [1]),
        ("min", [math.inf, 5.0], 5.0, [1]),
        ("max", [math.inf, 5.0, -math.inf], 5.0, [1]),
    ],
)
def test_the_best_value_is_always_finite_and_a_tie_keeps_the_earlier(way, values, best, steps):
    memory = Memory(("loss", way))
    noted = [memory.note({"validation/loss": value}, step) for step, value in enumerate(values)]
    assert [step for step, was_best in enumerate(noted) if was_best] == steps
    assert memory.best == best
    assert memory.best_step == (steps[-1] if steps else None)


def test_other_metrics_and_splits_are_never_best():
    memory = Memory(("loss", "min"))
    assert not memory.note({"train/loss": 1.0, "validation/other": 1.0}, 3)
    assert memory.metrics == {"train/loss": 1.0, "validation/other": 1.0}
