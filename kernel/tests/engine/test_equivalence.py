"""Guarantee 4, as far as one process goes: however a window is cut, the loss curve is the same to 2e-6."""

from __future__ import annotations

import pytest

STEPS = 50


def curve(bench, name, **train):
    """50 steps over 107 rows: the last window of each epoch is ragged, and no micro-batch size divides all."""
    ran = bench.run(
        name=name,
        data={"rows": 107, "masked": [3, 50, 51, 52]},
        model={"hidden": 12},
        train={"steps": STEPS, "batch": 16, "clip": 1.0, **train},
    )
    assert len(ran.losses) == STEPS
    return ran


@pytest.mark.parametrize("micro", [8, 4, 5, 1], ids=["2", "4", "4 ragged", "16"])
@pytest.mark.parametrize("partial", ["step", "carry", "drop"])
def test_accumulation_changes_nothing(bench, micro, partial):
    whole = curve(bench, "whole", partial=partial)
    cut = curve(bench, "cut", partial=partial, micro=micro)
    assert cut.losses == [pytest.approx(loss, abs=2e-6) for loss in whole.losses]
    assert cut.logged("norm") == [pytest.approx(norm, abs=1e-5) for norm in whole.logged("norm")]
    assert cut.report.progress == whole.report.progress


def test_the_compared_curve_moves(bench):
    """Curves that stood still would agree too."""
    losses = curve(bench, "whole").losses
    assert max(losses[-5:]) < min(losses[:5])
