"""The loss of a step is its sum over the weight of the whole window, however the window is cut."""

from __future__ import annotations

import pytest

from nlpkernel.errors import DataError, TrainingError
from nlpkernel.events import Logged, WindowSkipped
from nlpkernel_sdk.notes import BOOKS

RATE = {"lr": 0.5}


def gradients(ran):
    return [float(entry[0]["w"]) for entry in ran.seen("global")]


@pytest.mark.parametrize(("batch", "micro"), [(2, 2), (2, 1)], ids=["one batch", "two uneven micro-batches"])
def test_case_l1_the_loss_of_a_step_is_that_of_its_tokens(bench, batch, micro):
    train = {"steps": 1, "batch": batch, "micro": micro}
    ran = bench.sums([2.0, 90.0], [1.0, 9.0], train=train, spy={"gradients": True})
    assert ran.losses == [pytest.approx(9.2, abs=1e-6)]
    assert ran.logged("loss") == [pytest.approx(9.2, abs=1e-6)]
    assert gradients(ran) == [pytest.approx(9.2, abs=1e-6)]


def test_case_l1_a_logged_interval_is_weighted_by_tokens_too(bench):
    train = {"steps": 2, "batch": 1, "log": {"every": 2}}
    ran = bench.sums([2.0, 90.0], [1.0, 9.0], train=train, optimizer={"lr": 1e-9})
    assert ran.logged("loss") == [pytest.approx(9.2, abs=1e-5)]


def test_case_l2_a_partial_window_is_a_step_with_the_right_gradient(bench):
    train = {"epochs": 1.0, "batch": 4, "micro": 1, "partial": "step"}
    ran = bench.sums([1.0] * 5, [1.0] * 5, train=train, spy={"gradients": True})
    assert gradients(ran) == [1.0, 1.0]
    assert ran.report.progress[:4] == (2, 2, 5, 5)


def test_case_l2_a_carried_window_takes_rows_of_the_next_epoch(bench):
    train = {"epochs": 2.0, "batch": 4, "micro": 1, "partial": "carry"}
    ran = bench.sums([1.0] * 5, [1.0] * 5, train=train, spy={"gradients": True})
    assert gradients(ran) == [1.0, 1.0, 1.0]
    rows = [row for _, part in BOOKS["rows"] for row in part]
    assert rows == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]


def test_case_l2_dropped_rows_are_counted(bench):
    train = {"epochs": 2.0, "batch": 4, "micro": 1, "partial": "drop"}
    ran = bench.sums([1.0] * 5, [1.0] * 5, train=train, spy={"gradients": True})
    assert gradients(ran) == [1.0, 1.0]
    assert {part[0] for _, part in BOOKS["rows"]} == {0, 1, 2, 3}
    assert [(count.what, count.number) for count in ran.report.counts] == [("rows dropped in each epoch", 1)]


def test_case_l2_a_plan_under_which_no_step_can_happen_is_refused(bench):
    train = {"epochs": 1.0, "batch": 8, "partial": "drop"}
    ran = bench.sums([1.0] * 5, [1.0] * 5, train=train)
    assert isinstance(ran.error, DataError)
    assert "no step can ever happen" in str(ran.error)
    assert "batch" in str(ran.error)


def test_case_l3_the_schedule_moves_once_a_window(bench):
    train = {"epochs": 1.0, "batch": 4, "micro": 1}
    ran = bench.sums([1.0] * 16, [1.0] * 16, train=train, optimizer={"lr": 1.0, "warmup": 4})
    assert ran.logged("rate") == [0.25, 0.5, 0.75, 1.0]


def test_case_l4_a_micro_batch_without_a_counted_label_is_nothing(bench):
    train = {"steps": 1, "batch": 2, "micro": 1}
    ran = bench.sums([0.0, 90.0], [0.0, 9.0], train=train, spy={"gradients": True})
    assert ran.losses == [10.0]
    assert gradients(ran) == [10.0]
    assert ran.report.counts == ()


def test_case_l4_a_window_without_a_counted_label_is_skipped_counted_and_named(bench):
    train = {"steps": 3, "batch": 2, "micro": 1}
    tokens = [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    ran = bench.sums([1.0] * 6, tokens, train=train, optimizer={"lr": 0.5, "length": 10})
    assert ran.losses == [1.0, None, 0.5]
    assert ran.logged("loss") == [1.0, None, 0.5]
    assert ran.logged("norm") == [1.0, None, 1.0]
    # The window moved the data, and neither the schedule nor the weights.
    assert ran.logged("rate") == [0.5, 0.5, pytest.approx(0.45)]
    assert ran.report.progress[:4] == (3, 2, 6, 6)
    (skipped,) = ran.of(WindowSkipped)
    assert (skipped.step, skipped.reason, skipped.samples) == (1, "empty", ("row 2", "row 3"))
    assert [(count.what, count.number) for count in ran.report.counts] == [("windows skipped: empty", 1)]
    assert [event.skipped for event in ran.of(Logged)] == [0, 1, 0]
    assert ran.seen("applied") == [(1, True), (2, False), (3, True)]
    assert (1, [2]) not in BOOKS["rows"]


def test_case_l4_an_interval_leaves_skipped_windows_out_of_its_means(bench):
    train = {"steps": 3, "batch": 2, "log": {"every": 3}}
    tokens = [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    ran = bench.sums([1.0] * 6, tokens, train=train, optimizer={"lr": 1e-9})
    (log,) = ran.of(Logged)
    assert log.metrics["loss"] == pytest.approx(0.5 * (1 + 1))
    assert log.metrics["norm"] == 1.0
    assert (log.steps, log.skipped, log.samples, log.tokens) == (3, 1, 6, 6)


def test_only_the_first_samples_of_a_skipped_window_are_named(bench):
    ran = bench.sums([1.0] * 20, [0.0] * 10 + [1.0] * 10, train={"steps": 2, "batch": 10})
    (skipped,) = ran.of(WindowSkipped)
    assert skipped.samples == (*[f"row {row}" for row in range(8)], "and 2 more")


def test_each_term_is_a_mean_over_its_own_weight(bench):
    ran = bench.sums([2.0, 90.0], [1.0, 9.0], data={"second": "extra"}, train={"steps": 1, "batch": 2})
    assert ran.logged("loss") == [pytest.approx(9.2)]
    assert ran.logged("extra") == [pytest.approx(2.0)]


def test_a_term_that_the_weights_do_not_know_is_refused_by_name(bench):
    data = {"second": "extra", "weighted": False}
    ran = bench.sums([2.0], [1.0], data=data, train={"steps": 1, "batch": 1})
    assert isinstance(ran.error, TrainingError)
    assert "'extra'" in str(ran.error)


def test_the_gradient_is_clipped_by_its_global_norm(bench):
    train = {"steps": 1, "batch": 1, "clip": 0.5}
    ran = bench.sums([4.0], [1.0], train=train)
    assert ran.logged("norm") == [4.0]
    assert float(ran.weights["w"]) == pytest.approx(0.5, abs=1e-6)
    assert float(bench.sums([0.25], [1.0], train={**train}, name="small").weights["w"]) == 0.75
