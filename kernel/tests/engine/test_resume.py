"""2N steps are N steps and the rest after a resume, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import nlpkernel
from nlpkernel.errors import CheckpointError, UsageError
from nlpkernel.events import Evaluated, Logged, RunEnded, RunStarted, StepCompleted
from nlpkernel_sdk import tiny_values
from nlpkernel_sdk.notes import BOOKS

N = 5
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "fused": {"kind": "adamw"},
    "not-fused": {"kind": "adamw", "fused": False},
    "sgd": {"kind": "sgd", "momentum": 0.9},
}


def sections(bench, **more):
    return {
        "train": {"steps": 2 * N, "batch": 8, "micro": 3, "evaluate": {"every": 3}, "log": {"every": 2}},
        "model": {"hidden": 8, "dropout": 0.5},
        "checkpoint": bench.use("Shelf"),
        **more,
    }


def parted(bench, *monitors, at=N, **plan):
    """The run unbroken, its beginning, and its rest."""
    whole = bench.run(bench.use("Script"), *monitors, name="whole", **plan)
    first = bench.run(bench.use("Script", at={str(at): "STOP"}), *monitors, **plan)
    rest = bench.run(bench.use("Script"), *monitors, resume="newest", **plan)
    return whole, first, rest


def tree(bench, ran):
    """The whole state in the last version, but for the evaluation that the stop added."""
    version = bench.shelf(ran.folder).load()
    return {path: leaf for path, leaf in version.tree.items() if path != "run/memory"}


def assert_same_tree(left, right) -> None:
    assert left.keys() == right.keys()
    for path, leaf in left.items():
        other = right[path]
        assert leaf.kind == other.kind, path
        if isinstance(leaf.value, torch.Tensor):
            assert leaf.value.dtype == other.value.dtype, path
            assert torch.equal(leaf.value, other.value), path
        else:
            assert leaf.value == other.value, path


def assert_joined(whole, first, rest) -> None:
    assert first.losses + rest.losses == whole.losses
    assert rest.weights.keys() == whole.weights.keys()
    assert all(torch.equal(rest.weights[name], whole.weights[name]) for name in whole.weights)
    assert rest.report.progress == whole.report.progress
    assert rest.report.metrics == whole.report.metrics


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_case_r6_the_rest_is_bitwise_that_of_the_unbroken_run(bench, optimizer):
    plan = sections(bench, optimizer={**optimizer, "decay": "linear"})
    whole, first, rest = parted(bench, bench.use("Draws"), **plan)
    assert (len(first.losses), len(rest.losses)) == (N, N)
    assert_joined(whole, first, rest)
    state = tree(bench, whole)
    assert_same_tree(state, tree(bench, rest))
    moments = {path.rpartition("/")[2] for path in state if path.startswith("optimizer/")} - {
        "groups",
        "planned",
    }
    assert moments == (
        {"momentum_buffer"} if optimizer["kind"] == "sgd" else {"step", "exp_avg", "exp_avg_sq"}
    )


@pytest.mark.parametrize("at", [1, 3, 8, 9])
def test_case_r6_wherever_the_run_is_parted(bench, at):
    """8 steps are an epoch."""
    assert_joined(*parted(bench, at=at, **sections(bench)))


def test_case_r6_the_next_draws_of_every_generator_are_those_of_the_unbroken_run(bench):
    plan = sections(bench)
    bench.run(bench.use("Script"), bench.use("Draws"), name="whole", **plan)
    draws = BOOKS["draws"]
    parted(bench, bench.use("Draws"), **plan)
    assert BOOKS["draws"] == draws
    assert len(set(draws[0])) == 3


def test_case_r6_what_an_optimizer_keeps_in_its_groups(bench):
    assert_joined(*parted(bench, **sections(bench, optimizer=bench.use("Drifting"))))


def test_which_kernel_an_optimizer_uses_is_not_taken_over_from_a_version(bench):
    """A version from a device with fused kernels must be taken up on one without."""
    state = {"fused": bench.use("Stepping", fused=True), "plain": bench.use("Stepping", fused=False)}
    bench.run(bench.use("Script", at={"2": "STOP"}), **sections(bench, optimizer=state["fused"]))
    other = sections(bench, optimizer=state["plain"])
    rest = bench.run(bench.use("Script"), resume="newest", allow=["optimizer.fused"], **other)
    assert rest.error is None
    assert BOOKS["fused"] == [(False, 0.5)], "and a setting that is state is"


def test_case_r6_in_a_new_process(bench):
    plan = sections(bench)
    whole = bench.run(bench.use("Script"), name="whole", **plan)
    first = bench.run(bench.use("Script", at={str(N): "STOP"}), **plan)
    values = bench.values(bench.use("Script"), **plan)
    source = (
        "import json, sys, nlpkernel\n"
        "from nlpkernel.events import StepCompleted\n"
        "plan = nlpkernel.Plan.of(json.loads(sys.argv[1]))\n"
        "events = list(nlpkernel.train(plan, runs_folder='.', resume='newest'))\n"
        "steps = [each for each in events if isinstance(each, StepCompleted)]\n"
        "print([float(each.sums['loss']) / each.totals['loss'] for each in steps])\n"
    )
    rest = json.loads(bench.child(source, json.dumps(values)).stdout)
    assert first.losses + rest == whole.losses


def test_case_r4_the_rows_after_a_resume_are_those_of_the_unbroken_run(bench):
    """Resumed twice; a resume that drew the first rows again would be seen at once."""
    train = {"steps": 20, "batch": 2, "seed": 3}
    plan = {"train": train, "data": {"rows": 1000}, "checkpoint": bench.use("Shelf")}
    whole = bench.run(bench.use("Script"), name="whole", **plan)
    parts = [
        bench.run(bench.use("Script", at={"10": "STOP"}), **plan),
        bench.run(bench.use("Script", at={"15": "STOP"}), resume="newest", **plan),
        bench.run(bench.use("Script"), resume="newest", **plan),
    ]
    assert [len(part.losses) for part in parts] == [10, 5, 5]
    assert [loss for part in parts for loss in part.losses] == whole.losses
    assert not set(whole.losses[:10]) & set(whole.losses[10:])


def test_case_r6_what_an_evaluation_draws_moves_no_draw_of_the_training(bench):
    plan = sections(bench)
    often = {**plan, "train": {**plan["train"], "evaluate": {"every": 1}}}
    left = bench.run(bench.use("Draws"), name="left", **plan)
    right = bench.run(bench.use("Draws"), name="right", **often)
    assert left.losses == right.losses


def test_case_r7_patience_goes_on_counting(bench):
    """Scores .50 .60 .59 .58 .57, larger is better, patience 3."""
    policy = {"use": "early-stopping", "metric": "validation/score", "better": "larger", "patience": 3}
    train = {"steps": 20, "batch": 8, "evaluate": {"every": 2}, "policy": [policy]}
    plan = {
        "train": train,
        "data": bench.use("Scored", scores=[0.50, 0.60, 0.59, 0.58, 0.57, 0.56]),
        "checkpoint": bench.use("Shelf"),
    }
    first = bench.run(bench.use("Script", at={"8": "STOP"}), **plan)
    assert [event.metrics["score"] for event in first.of(Evaluated)] == [0.50, 0.60, 0.59, 0.58]
    rest = bench.run(bench.use("Script"), resume="newest", **plan)
    assert [event.metrics["score"] for event in rest.of(Evaluated)] == [0.57]
    assert rest.report.status == "stopped"
    assert "validation/score was not better in 3 evaluations" in rest.report.reason
    assert rest.report.progress.step == 10
    again = bench.run(bench.use("Script"), resume="newest", **plan)
    assert again.error is None
    assert again.losses == []
    assert again.of(Evaluated) == []
    assert again.report.status == "stopped"
    assert "stopped before" in again.report.reason
    assert "validation/score was not better in 3 evaluations" in again.report.reason
    assert again.report.best == 0.60
    assert again.report.progress.step == 10
    changed = {**policy, "patience": 4}
    longer = {**plan, "train": {**train, "policy": [changed]}}
    on = bench.run(bench.use("Script"), resume="newest", **longer)
    assert on.report.progress.step == 12
    assert on.report.status == "stopped"


def test_case_r7_resuming_a_finished_run_trains_nothing_and_says_why(bench):
    plan = sections(bench)
    done = bench.run(**plan)
    again = bench.run(resume="newest", **plan)
    assert again.losses == []
    assert again.of(Evaluated) == []
    assert again.of(RunEnded)[0].status == "finished"
    assert again.report.reason == f"all {2 * N} steps were done before"
    assert again.report.progress == done.report.progress
    assert again.report.metrics == done.report.metrics
    assert again.report.version == done.report.version


def test_case_r9_the_first_event_after_a_resume_says_where_it_takes_up(bench):
    train = {"steps": 40, "batch": 8}
    plan = {"train": train, "checkpoint": bench.use("Shelf")}
    bench.run(bench.use("Script", at={"25": "STOP"}), **plan)
    rest = bench.run(bench.use("Script"), resume="newest", **plan)
    (started,) = rest.of(RunStarted)
    assert started.start == (25, 25, 200, 800, 25 / 8)
    assert (started.steps, started.steps_per_epoch) == (40, 8)
    # Time, tokens and samples are of this process.
    assert rest.of(Logged)[0].tokens == 32
    assert rest.of(StepCompleted)[0].progress.step == 26


def test_the_last_version_knows_of_the_last_evaluation(bench):
    """However the step of the save, the end of the run and the evaluation coincide."""
    for every in (1, N, 2 * N):
        plan = sections(bench, name=f"every-{every}", checkpoint=bench.use("Shelf", every=every))
        ran = bench.run(**plan)
        version = bench.shelf(ran.folder).load()
        assert version.step == 2 * N
        assert version.facts["metrics"] == ran.report.metrics
        assert ran.report.metrics["validation/loss"] == ran.of(Evaluated)[-1].metrics["loss"]
        assert version.facts["main"] == ["validation/loss", "min"]


@pytest.mark.parametrize("every", [2, N])
def test_a_version_in_the_middle_is_as_good_as_the_last(bench, every):
    plan = sections(bench, checkpoint=bench.use("Shelf", every=every))
    whole = bench.run(**plan)
    reference = f"step-{every:04d}"
    rest = bench.run(resume=reference, **plan)
    assert rest.of(RunStarted)[0].start.step == every
    assert rest.losses == whole.losses[every:]
    assert rest.report.metrics == whole.report.metrics


def test_counts_go_on(bench):
    plan = sections(bench, data={"masked": list(range(64)), "rows": 64})
    ran = bench.run(bench.use("Script", at={"4": "STOP"}), **plan)
    assert [count.number for count in ran.report.counts] == [4]
    rest = bench.run(bench.use("Script"), resume="newest", **plan)
    assert [count.number for count in rest.report.counts] == [2 * N]


def test_the_store_plugin_holds_all_of_it(bench):
    """The same through a store that keeps only plain data and tensors."""
    plan = sections(bench, checkpoint={"use": "store", "every": 2, "fsync": False})
    assert_joined(*parted(bench, **plan))


def test_there_must_be_something_to_resume_from(bench):
    plan = sections(bench)
    nothing = bench.run(resume="newest", **plan)
    assert isinstance(nothing.error, UsageError)
    assert nothing.error.problems[0].code == "NK303"
    bare = tiny_values()
    nlpkernel.run(nlpkernel.Plan.of(bare), runs_folder=bench.folder)
    with pytest.raises(UsageError) as caught:
        nlpkernel.run(nlpkernel.Plan.of(bare), runs_folder=bench.folder, resume="newest")
    assert caught.value.problems[0].code == "NK304"


def test_a_run_without_a_version_is_not_resumed(bench):
    plan = sections(bench, checkpoint=bench.use("Shelf", every=1, full=1))
    before = bench.run(**plan)
    assert isinstance(before.error, CheckpointError)
    report = before.report
    again = bench.run(resume="newest", **plan)
    assert isinstance(again.error, CheckpointError)
    assert again.error.problems[0].code == "NK501"
    assert again.report == report, "it still says what became of the run"
    assert not again.of(RunEnded)


def test_another_model_is_refused_by_the_names_that_differ(bench):
    plan = sections(bench)
    bench.run(**plan)
    ran = bench.run(resume="newest", allow=["model", "schema"], **{**plan, "model": {"hidden": 4}})
    assert isinstance(ran.error, CheckpointError)
    assert "body.weight has shape (8, 4) in the version and (4, 4) in the model" in str(ran.error)


def test_the_state_of_a_part_that_is_missing_or_strange_is_refused_by_name(bench):
    plan = sections(bench)
    counter, script = bench.use("Counter"), bench.use("Script")
    bench.run(counter, **plan)
    without = bench.run(resume="newest", **plan)
    assert isinstance(without.error, CheckpointError)
    assert without.error.problems[0].code == "NK503"
    assert "component/monitor[0]" in str(without.error)
    bench.run(name="other", **plan)
    new = bench.run(script, counter, name="other", resume="newest", **plan)
    assert isinstance(new.error, CheckpointError)
    assert new.error.problems[0].code == "NK503"
    assert "component/monitor[1]" in str(new.error)


def test_a_part_that_refuses_its_state_is_named(bench):
    plan = sections(bench)
    bench.run(bench.use("Counter"), **plan)
    ran = bench.run(bench.use("Counter", refuses=True), resume="newest", **plan)
    assert isinstance(ran.error, CheckpointError)
    assert ran.error.problems[0].code == "NK504"
    assert "component/monitor[0]" in str(ran.error)
    assert "what is this" in str(ran.error)


def test_the_state_of_a_component_is_taken_up(bench):
    plan = sections(bench)
    parted(bench, bench.use("Counter"), **plan)
    assert BOOKS["counter"] == [(number,) for number in range(N + 1, 2 * N + 1)]
