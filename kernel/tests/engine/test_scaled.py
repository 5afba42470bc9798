"""Case R1: a loss scale. A step skipped for overflow moves neither schedule nor count, before and after a resume."""

from __future__ import annotations

import pytest

from nlpkernel.errors import TrainingError
from nlpkernel.events import Logged, WindowSkipped
from nlpkernel_sdk.notes import BOOKS

#: Rows of 1 give a gradient of 1. This row's loss is finite, and its gradient times a scale of 256 is not.
LARGE = 3e37


def run(bench, *monitors, rows, precision=None, **sections):
    batch = sections.pop("batch", 1)
    sections["train"] = {"steps": len(rows) // batch, "batch": batch, **sections.get("train", {})}
    optimizer = {"lr": 1e-5, "length": 10}
    return bench.sums(
        rows,
        [1.0] * len(rows),
        *monitors,
        precision=bench.use("Scaled", **(precision or {})),
        optimizer=optimizer,
        **sections,
    )


def test_case_r1_the_rate_of_update_k_is_a_line(bench):
    ran = run(bench, rows=[1.0] * 10)
    assert ran.logged("rate") == [pytest.approx(1e-5 * (1 - k / 10), rel=1e-12) for k in range(10)]
    assert ran.logged("loss")[0] == 1.0
    assert BOOKS["scale"][-1] == (256.0, 10)


def test_case_r1_an_overflow_moves_neither_schedule_nor_count(bench):
    ran = run(bench, rows=[1.0, 1.0, LARGE, 1.0, 1.0])
    assert ran.report.progress[:2] == (5, 4)
    assert ran.logged("rate") == [pytest.approx(1e-5 * (1 - k / 10), rel=1e-12) for k in (0, 1, 2, 2, 3)]
    assert ran.logged("loss")[2] is None
    (skipped,) = ran.of(WindowSkipped)
    assert (skipped.step, skipped.reason, skipped.samples) == (2, "overflow", ("row 2",))
    assert [(count.what, count.number) for count in ran.report.counts] == [("windows skipped: overflow", 1)]
    assert BOOKS["scale"] == [(256.0, 1), (256.0, 2), (128.0, 0), (128.0, 1), (128.0, 2)]
    assert [event.skipped for event in ran.of(Logged)] == [0, 0, 1, 0, 0]


def test_case_r1_scale_and_counter_are_taken_up_again(bench):
    rows = [1.0, LARGE, 1.0, 1.0, 1.0, 1.0, LARGE, 1.0, 1.0, 1.0]
    sections = {"checkpoint": bench.use("Shelf"), "precision": {"growth": 5}}
    whole = run(bench, bench.use("Script"), rows=rows, name="whole", **sections)
    scales = list(BOOKS["scale"])
    run(bench, bench.use("Script", at={"5": "STOP"}), rows=rows, **sections)
    assert BOOKS["scale"] == scales[:5]
    rest = run(bench, bench.use("Script"), rows=rows, resume="newest", **sections)
    assert BOOKS["scale"] == scales[5:]
    assert scales[4] == (128.0, 3)
    assert rest.logged("rate") == whole.logged("rate")[5:]
    assert rest.report.progress == whole.report.progress
    assert rest.report.progress[:2] == (10, 8)
    assert rest.report.counts == whole.report.counts
    assert float(rest.weights["w"]) == float(whole.weights["w"])


def test_the_norm_is_that_of_unscaled_gradients(bench):
    ran = run(bench, rows=[3.0], train={"clip": 1.0})
    assert ran.logged("norm") == [3.0]
    assert float(ran.weights["w"]) == pytest.approx(1.0 - 1e-5, abs=1e-7)


@pytest.mark.parametrize("on_nan", ["stop", "rollback"])
def test_a_loss_that_is_not_finite_is_no_overflow(bench, on_nan):
    ran = run(bench, rows=[1.0, 1.0, 3e38, 3e38, 1.0, 1.0], batch=2, train={"on_nan": on_nan})
    assert isinstance(ran.error, TrainingError)
    assert "step 2 is not finite" in str(ran.error)
    assert "row 2, row 3" in str(ran.error)
    assert ran.report.progress[:2] == (1, 1)


def test_a_loss_that_is_not_finite_is_skipped_where_the_plan_says_so(bench):
    ran = run(bench, rows=[1.0, 1.0, 3e38, 3e38, 1.0, 1.0], batch=2, train={"on_nan": "skip"})
    assert ran.error is None
    assert [event.reason for event in ran.of(WindowSkipped)] == ["non-finite"]
    assert ran.report.progress[:2] == (3, 2)


def test_overflows_without_end_are_an_error_and_what_was_learned_is_kept(bench):
    rows = [1.0, *[LARGE] * 60]
    sections = {"precision": {"start": 1e30}, "checkpoint": bench.use("Shelf")}
    ran = run(bench, rows=rows, **sections)
    assert isinstance(ran.error, TrainingError)
    assert ran.error.problems[0].code == "NK404"
    assert "50 windows in a row" in str(ran.error)
    assert "row 50" in str(ran.error)
    assert ran.report.version is not None


def test_overflows_with_good_windows_between_are_none_too_many(bench):
    rows = [LARGE] * 49 + [1.0] + [LARGE] * 49
    ran = run(bench, rows=rows, precision={"start": 1e30, "growth": 1})
    assert ran.error is None
