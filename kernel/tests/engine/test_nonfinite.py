"""Case L5: a loss or gradient that is not finite, under each policy, wherever in a run it falls."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from nlpkernel.errors import TrainingError
from nlpkernel.events import Decided, Evaluated, Logged, RunEnded, StepCompleted, VersionSaved, WindowSkipped
from nlpkernel_sdk.notes import BOOKS

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "fused": {"kind": "adamw"},
    "not-fused": {"kind": "adamw", "fused": False},
    "sgd": {"kind": "sgd", "momentum": 0.9},
}
ROWS, BATCH, STEPS = 96, 8, 12
#: Windows (from 0), in a run of 12 steps that logs every 4.
PLACES = {
    "the first step": 0,
    "the end of an interval": 3,
    "the start of an interval": 4,
    "the middle of an interval": 5,
    "the last step": 11,
}

optimizers = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=list(OPTIMIZERS))


def window(number: int) -> list[int]:
    """Rows of a window, where nothing is shuffled."""
    return list(range(number * BATCH, (number + 1) * BATCH))


def run(bench, *monitors, name="tiny", steps=STEPS, poisoned=(), masked=(), **sections):
    sections["train"] = {"steps": steps, "batch": BATCH, "log": {"every": 4}, **sections.get("train", {})}
    data = {"rows": ROWS, "shuffle": False, "poisoned": list(poisoned), "masked": list(masked)}
    model = {"hidden": 6, "dropout": 0.3}
    return bench.run(*monitors, name=name, data=data, model=model, **sections)


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def numbers_were_computed(ran) -> bool:
    """Whether every number that anybody was told is one."""
    told = [event.metrics for event in ran.events if isinstance(event, (Logged, Evaluated))]
    return all(value is None or math.isfinite(value) for metrics in told for value in metrics.values())


def assert_stopped(bench, ran, bad: int, before) -> None:
    assert isinstance(ran.error, TrainingError)
    (problem,) = ran.error.problems
    assert problem.code == "NK403"
    names = ", ".join(f"row {row}" for row in window(bad))
    assert problem.message == f"loss or gradient of step {bad + 1} is not finite, on rank 0; samples: {names}"
    assert ran.report.status == "failed"
    assert "NK403" in ran.report.reason
    assert ran.report.progress[:2] == (bad, bad)
    assert ran.report.progress[2:4] == (bad * BATCH, bad * BATCH * 4)
    assert numbers_were_computed(ran)
    if before is not None:
        assert same(ran.weights, before.weights)
    (skipped,) = ran.of(WindowSkipped)
    assert (skipped.step, skipped.reason) == (bad, "non-finite")
    assert [event.action for event in ran.of(Decided)] == ["fail"]
    assert ran.of(RunEnded)[0].status == "failed"


@optimizers
@pytest.mark.parametrize("bad", PLACES.values(), ids=list(PLACES))
def test_case_l5_stop_leaves_the_weights_of_the_step_before(bench, optimizer, bad):
    before = run(bench, name="before", steps=bad, optimizer=optimizer) if bad else None
    ran = run(bench, poisoned=[bad * BATCH + 3], optimizer=optimizer)
    assert_stopped(bench, ran, bad, before)


@optimizers
@pytest.mark.parametrize("due", ["evaluate", "checkpoint"])
def test_case_l5_nothing_is_evaluated_or_saved_on_top_of_it(bench, optimizer, due):
    bad = 5
    sections: dict[str, Any] = {"checkpoint": bench.use("Shelf", every=6 if due == "checkpoint" else 100)}
    if due == "evaluate":
        sections["train"] = {"evaluate": {"every": 6}}
    before = run(bench, name="before", steps=bad, optimizer=optimizer)
    ran = run(bench, poisoned=[bad * BATCH], optimizer=optimizer, **sections)
    assert_stopped(bench, ran, bad, before)
    assert ran.of(Evaluated) == []
    # What was learned before is kept.
    (saved,) = ran.of(VersionSaved)
    assert saved.progress.step == bad
    version = bench.shelf(ran.folder).load()
    assert version.step == bad
    kept = {path[6:]: leaf.value for path, leaf in version.tree.items() if path.startswith("model/")}
    assert same(kept, before.weights)


@optimizers
def test_case_l5_a_stopped_run_stops_there_again_when_resumed(bench, optimizer):
    sections = {"optimizer": optimizer, "checkpoint": bench.use("Shelf")}
    first = run(bench, poisoned=[42], **sections)
    again = run(bench, poisoned=[42], resume="newest", **sections)
    assert_stopped(bench, again, 5, first)
    assert str(again.error) == str(first.error)


@optimizers
@pytest.mark.parametrize("bad", PLACES.values(), ids=list(PLACES))
def test_case_l5_skip_goes_on_as_if_the_window_counted_nothing(bench, optimizer, bad):
    sections = {"optimizer": {**optimizer, "decay": "linear"}, "train": {"on_nan": "skip"}}
    masked = run(bench, name="masked", masked=window(bad), **sections)
    ran = run(bench, poisoned=[bad * BATCH + 3], **sections)
    assert ran.error is None
    # Dropout draws for a window that ran, and not for one that counts nothing; so the weights are compared below.
    assert ran.report.progress == masked.report.progress
    assert ran.report.progress[:2] == (STEPS, STEPS - 1)
    later = [event.progress.step > bad + 1 for event in ran.of(Logged)]
    assert [rate for rate, after in zip(ran.logged("rate"), later, strict=True) if after] == [
        rate for rate, after in zip(masked.logged("rate"), later, strict=True) if after
    ]
    assert numbers_were_computed(ran)
    assert [(count.what, count.number) for count in ran.report.counts] == [("windows skipped: non-finite", 1)]
    (skipped,) = ran.of(WindowSkipped)
    assert (skipped.step, skipped.reason) == (bad, "non-finite")
    assert skipped.samples == tuple(f"row {row}" for row in window(bad))
    assert [entry for entry in ran.seen("applied") if not entry[1]] == [(bad + 1, False)]


@optimizers
def test_case_l5_skip_changes_no_weight_and_no_moment(bench, optimizer):
    sections = {"optimizer": optimizer, "train": {"on_nan": "skip"}}
    masked = bench.run(name="masked", data={"masked": window(2), "shuffle": False}, **sections)
    ran = bench.run(data={"poisoned": [17], "shuffle": False}, **sections)
    assert same(ran.weights, masked.weights)
    assert ran.losses[-1] == masked.losses[-1]


def test_case_l5_an_interval_of_skipped_windows_alone_has_no_loss(bench):
    ran = run(bench, poisoned=[0, 8, 16, 24], train={"on_nan": "skip"})
    assert ran.logged("loss")[0] is None
    assert ran.logged("norm")[0] is None
    assert ran.of(Logged)[0].skipped == 4
    assert ran.logged("loss")[1] is not None


@optimizers
def test_case_l5_rollback_takes_up_a_version_and_leaves_the_window_out(bench, optimizer):
    sections = {
        "optimizer": {**optimizer, "decay": "linear"},
        "train": {"on_nan": "rollback"},
        "checkpoint": bench.use("Shelf", every=2),
    }
    masked = run(bench, name="masked", masked=window(5), **sections)
    ran = run(bench, bench.use("Counter"), poisoned=[40], **sections)
    assert ran.error is None
    assert same(ran.weights, masked.weights)
    assert ran.report.progress == masked.report.progress
    assert {count.what: count.number for count in ran.report.counts} == {
        "roll-backs": 1,
        "windows skipped: non-finite": 1,
    }
    assert [event.action for event in ran.of(Decided)] == ["rollback"]
    assert numbers_were_computed(ran)
    # A component is taken back too: its count is that of the updates.
    assert BOOKS["counter"][-1] == (STEPS - 1,)


@pytest.mark.parametrize("second", [5, 8], ids=["before the next save", "after it"])
def test_case_l5_rollback_past_several_bad_windows(bench, second):
    sections = {"train": {"on_nan": "rollback"}, "checkpoint": bench.use("Shelf", every=3)}
    masked = run(bench, name="masked", masked=window(4) + window(second), **sections)
    ran = run(bench, poisoned=[32, second * BATCH], **sections)
    assert same(ran.weights, masked.weights)
    assert {count.what: count.number for count in ran.report.counts} == {
        "roll-backs": 2,
        "windows skipped: non-finite": 2,
    }


def test_case_l5_rollback_survives_a_resume(bench):
    """A window that is left out stays left out."""
    sections = {"train": {"on_nan": "rollback"}, "checkpoint": bench.use("Shelf", every=2)}
    whole = run(bench, name="whole", poisoned=[32], **sections)
    run(bench, bench.use("Script", at={"8": "STOP"}), poisoned=[32], **sections)
    ran = run(bench, bench.use("Script", at={}), poisoned=[32], resume="newest", **sections)
    assert same(ran.weights, whole.weights)
    assert ran.report.counts == whole.report.counts


@pytest.mark.parametrize("store", [None, "Shelf"])
def test_case_l5_rollback_without_a_version_says_so(bench, store):
    sections = {"train": {"on_nan": "rollback"}}
    if store:
        sections["checkpoint"] = bench.use(store, every=100)
    ran = run(bench, poisoned=[0], **sections)
    assert isinstance(ran.error, TrainingError)
    assert ran.error.problems[0].code == "NK405"
    assert "step 1" in str(ran.error)
    assert "row 0" in str(ran.error)


@optimizers
@pytest.mark.parametrize("on_nan", ["stop", "skip", "rollback"])
def test_case_l5_a_gradient_alone_names_the_whole_window(bench, optimizer, on_nan):
    sections = {
        "optimizer": optimizer,
        "train": {"on_nan": on_nan},
        "checkpoint": bench.use("Shelf", every=2),
    }
    ran = run(bench, bench.use("Spoil", step=6), **sections)
    assert isinstance(ran.error, TrainingError) == (on_nan == "stop")
    assert ran.of(WindowSkipped)[0].samples == tuple(f"row {row}" for row in window(5))
    assert ran.of(WindowSkipped)[0].reason == "non-finite"


def test_case_l5_a_loss_alone_is_enough(bench):
    """Each micro-batch is finite and so is the gradient; their summed loss is not."""
    ran = bench.sums([3e38, 3e38], [1e30, 1e30], train={"steps": 1, "batch": 2, "micro": 1})
    assert isinstance(ran.error, TrainingError)
    assert float(ran.weights["w"]) == 1.0


def test_case_l5_looking_for_the_samples_moves_no_draw(bench):
    """With a rate of nothing the losses tell the draws of dropout."""
    sections = {"optimizer": {"lr": 1e-30}, "train": {"on_nan": "skip"}}
    plain = run(bench, name="plain", **sections)
    ran = run(bench, bench.use("Spoil", step=6), **sections)
    assert ran.report.progress.updates == STEPS - 1
    assert ran.losses == plain.losses


def test_case_l5_only_the_micro_batches_that_are_bad_are_named(bench):
    ran = run(bench, poisoned=[43], train={"micro": 2})
    assert ran.of(WindowSkipped)[0].samples == ("row 42", "row 43")


def test_case_l5_windows_between_it_and_the_log_are_no_updates(bench):
    """The host reads the flag after window 7; window 5 was bad, and window 6 empty."""
    ran = run(
        bench, poisoned=[40], masked=window(6), optimizer=OPTIMIZERS["fused"], train={"log": {"every": 8}}
    )
    assert ran.report.progress[:4] == (5, 5, 5 * BATCH, 5 * BATCH * 4)


def test_case_l5_a_full_disk_does_not_hide_it(bench):
    ran = run(bench, poisoned=[40], checkpoint=bench.use("Shelf", full=5))
    assert [problem.code for problem in ran.error.problems] == ["NK403", "X001"]


def test_steps_completed_are_told_up_to_the_log(bench):
    ran = run(bench, poisoned=[40], optimizer=OPTIMIZERS["fused"])
    assert [event.progress.step for event in ran.of(StepCompleted)] == list(range(1, 9))


def test_a_policy_that_rolls_back_for_another_reason_leaves_the_last_window_out(bench):
    sections = {"checkpoint": bench.use("Shelf", every=2)}
    masked = run(bench, name="masked", masked=window(4), **sections)
    ran = run(bench, bench.use("Script", at={"5": "ROLLBACK"}, always=False), **sections)
    assert same(ran.weights, masked.weights)
    assert [(log.progress.step, log.steps) for log in ran.of(Logged)] == [(4, 4), (8, 4), (12, 4)]
    assert {count.what: count.number for count in ran.report.counts} == {
        "roll-backs": 1,
        "windows skipped: roll-back": 1,
    }


def test_a_roll_back_forgets_what_the_device_had_not_said_yet(bench):
    """Window 5 is bad, and somebody rolls back before the host has read the flag."""
    sections = {"checkpoint": bench.use("Shelf", every=2), "optimizer": OPTIMIZERS["fused"]}
    masked = run(bench, name="masked", masked=window(5), **sections)
    ran = run(bench, bench.use("Script", at={"6": "ROLLBACK"}, always=False), poisoned=[40], **sections)
    assert ran.error is None
    assert same(ran.weights, masked.weights)


def test_a_policy_that_rolls_back_for_ever_is_ended(bench):
    ran = run(bench, bench.use("Script", at={"5": "ROLLBACK"}), checkpoint=bench.use("Shelf", every=2))
    assert isinstance(ran.error, TrainingError)
    assert ran.error.problems[0].code == "NK405"
    assert "left out already" in str(ran.error)
