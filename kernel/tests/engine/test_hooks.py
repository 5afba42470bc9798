"""The hooks that a component of any slot may implement, as the engine asks them."""

from __future__ import annotations

import logging

import pytest
import torch

from nlpkernel.errors import ComponentFailure, NlpkernelError, PluginError, TrainingError
from nlpkernel.events import Decided, Evaluated, Logged, ObserverDetached, StepCompleted, VersionSaved
from nlpkernel_sdk.notes import BOOKS


def test_a_component_subscribes_once_before_anything_is_opened(bench):
    ran = bench.run()
    assert ran.book[0] == ("subscribe",)
    assert len(ran.seen("subscribe")) == 1
    refused = bench.run(name="refused", train={"partial": "drop", "batch": 1000})
    assert [entry[0] for entry in refused.book] == ["subscribe", "close"]


def test_gradients_are_shown_local_and_then_global_in_each_step(bench):
    ran = bench.sums(
        [1.0, 2.0, 3.0, 4.0],
        [1.0] * 4,
        train={"steps": 2, "batch": 2, "micro": 1},
        spy={"gradients": True},
    )
    stages = [entry[0] for entry in ran.book if entry[0] in ("local", "global", "applied")]
    assert stages == ["local", "global", "applied"] * 2
    # Once a window, whatever its micro-batches: the mean of both.
    assert [float(entry[0]["w"]) for entry in ran.seen("local")] == [1.5, 3.5]


def test_a_gradient_changed_at_local_is_what_norm_clip_and_update_see(bench):
    plan = {"train": {"steps": 1, "batch": 1}, "spy": {"gradients": True}}
    ran = bench.sums([0.5], [1.0], bench.use("Halver"), **plan)
    assert [float(entry[0]["w"]) for entry in ran.seen("global")] == [0.25]
    assert ran.logged("norm") == [0.25]
    assert float(ran.weights["w"]) == 0.75


def test_gradients_carry_the_names_of_the_model(bench):
    ran = bench.run(train={"steps": 1}, model={"hidden": 4}, spy={"gradients": True})
    assert ran.seen("global")[0][0].keys() == ran.weights.keys()


def test_update_applied_is_told_after_every_step(bench):
    ran = bench.run(train={"steps": 3})
    assert ran.seen("applied") == [(1, True), (2, True), (3, True)]


def test_other_weights_are_in_place_during_an_evaluation_and_a_copy_and_only_then(bench):
    train = {"steps": 4, "evaluate": {"every": 2}}
    plain = bench.run(name="plain", train=train)
    ran = bench.run(bench.use("Other", value=0.0), train=train, checkpoint=bench.use("Shelf"))
    assert all(torch.equal(ran.weights[name], plain.weights[name]) for name in plain.weights)
    assert ran.losses == plain.losses
    # With every weight 0 the error is that of guessing 0, whatever was learned.
    first, second = [event.metrics["loss"] for event in ran.of(Evaluated)]
    assert first == second
    assert first != plain.of(Evaluated)[0].metrics["loss"]
    saved = bench.shelf(ran.folder).load()
    assert torch.equal(saved.tree["model/head.weight"].value, plain.weights["head.weight"])
    words = [entry for entry in ran.book if entry[0] in ("enter", "leave", "applied")]
    assert words == [
        ("applied", 1, True),
        ("applied", 2, True),
        ("enter", "evaluate"),
        ("leave", "evaluate"),
        ("applied", 3, True),
        ("applied", 4, True),
        ("enter", "evaluate"),
        ("leave", "evaluate"),
        ("enter", "export"),
        ("leave", "export"),
    ]


def test_one_component_may_own_backward(bench):
    train = {"steps": 1, "batch": 2, "micro": 1}
    ran = bench.sums([1.0, 2.0], [1.0, 1.0], bench.use("Backward"), train=train)
    assert ran.logged("norm") == [4.5]
    assert BOOKS["backward"] == [(["loss"],)] * 2


def test_two_owners_of_backward_are_refused_before_anything_is_opened(bench):
    with pytest.raises(NlpkernelError) as caught:
        bench.run(bench.use("Backward"), bench.use("Backward"))
    assert isinstance(caught.value, PluginError)
    assert caught.value.problems[0].code == "NK059"


def test_a_backward_that_fails_is_named(bench):
    ran = bench.run(bench.use("Backward", fails=True))
    assert isinstance(ran.error, ComponentFailure)
    assert "backward failed: RuntimeError: no gradients today" in str(ran.error)
    assert "Backward of" in str(ran.error)
    assert "watching.py" in str(ran.error)


def decided(bench, *scripts, **sections):
    policies = [bench.use("Script", at=at, book=f"script {index}") for index, at in enumerate(scripts)]
    sections["train"] = {"steps": 6, "log": {"every": 2}, **sections.get("train", {}), "policy": policies}
    return bench.run(checkpoint=bench.use("Shelf"), **sections)


def test_policies_are_asked_in_every_step_and_told_what_became_known(bench):
    ran = decided(bench, {}, train={"steps": 4, "evaluate": {"every": 3}})
    asked = BOOKS["script 0"]
    assert [step for step, _ in asked] == [1, 2, 3, 4]
    assert [sorted(metrics) for _, metrics in asked] == [
        [],
        ["loss", "norm", "rate"],
        ["validation/loss"],
        ["loss", "norm", "rate", "validation/loss"],
    ]
    assert asked[2][1]["validation/loss"] == ran.of(Evaluated)[0].metrics["loss"]


def test_what_is_due_at_one_step_comes_in_order(bench):
    """Logged, evaluated, saved: also at the end, where it is due whatever the intervals are."""
    ran = decided(bench, {str(step): "SAVE" for step in range(1, 7)}, train={"log": {"every": 4}})
    kinds = [type(event) for event in ran.events if isinstance(event, (Logged, Evaluated, VersionSaved))]
    saved = [VersionSaved]
    assert kinds == [*saved * 3, Logged, *saved, *saved, Logged, Evaluated, *saved]


def test_the_schedule_is_told_of_every_evaluation(bench):
    optimizer = bench.use("Told", book="told")
    ran = bench.run(optimizer=optimizer, train={"steps": 3, "evaluate": {"every": 2}})
    told = [entry[0] for entry in BOOKS["told"]]
    assert told == [{"validation/loss": event.metrics["loss"]} for event in ran.of(Evaluated)]
    # The rate is halved at each, for the updates after it.
    assert ran.logged("rate") == [1.0, 1.0, 0.5]


def test_a_save_asked_for_is_done(bench):
    ran = decided(bench, {"2": "SAVE", "4": "SAVE"})
    assert [event.progress.step for event in ran.of(VersionSaved)] == [2, 4, 6]
    assert ran.of(Decided) == []


def test_a_stop_ends_the_run_evaluated_and_saved(bench):
    ran = decided(bench, {"3": "STOP"})
    assert ran.report.status == "stopped"
    assert ran.report.reason.startswith("stop at 3 (Script of ")
    assert ran.report.progress.step == 3
    # The interval that was cut short is logged.
    assert [type(event) for event in ran.events[-5:-1]] == [Decided, Logged, Evaluated, VersionSaved]
    assert [event.progress.step for event in ran.of(StepCompleted)] == [1, 2, 3]


@pytest.mark.parametrize("order", [1, -1])
def test_the_strongest_answer_wins_and_a_save_is_done_beside_a_stop(bench, order):
    ran = decided(bench, *[{"3": "SAVE"}, {"3": "STOP"}][::order])
    assert ran.report.status == "stopped"
    assert [event.progress.step for event in ran.of(VersionSaved)] == [3]


def test_a_failure_is_stronger_than_a_stop_and_is_raised_after_a_save(bench):
    ran = decided(bench, {"3": "STOP"}, {"3": "FAIL"})
    assert isinstance(ran.error, TrainingError)
    assert str(ran.error).startswith("NK403 fail at 3 [Script of")
    assert [event.action for event in ran.of(Decided)] == ["fail"]
    assert [event.progress.step for event in ran.of(VersionSaved)] == [3]
    assert ran.report.status == "failed"


def test_a_stop_at_the_last_step_is_a_stop(bench):
    ran = decided(bench, {"6": "STOP"})
    assert (ran.report.status, ran.report.progress.step) == ("stopped", 6)
    assert len(ran.of(VersionSaved)) == 1
    assert len(ran.of(Evaluated)) == 1


def test_a_policy_that_fails_ends_the_run_by_name(bench):
    ran = bench.run(bench.use("Broken", where="decide"))
    assert isinstance(ran.error, ComponentFailure)
    assert "decide failed: RuntimeError: undecided [Broken of" in str(ran.error)


@pytest.mark.parametrize("where", ["event", "gradients"])
def test_an_observer_that_fails_is_named_counted_and_detached(bench, where):
    plain = bench.run(name="plain", train={"steps": 5})
    ran = bench.run(bench.use("Broken", where=where), train={"steps": 5})
    assert ran.error is None
    assert ran.losses == plain.losses
    (detached,) = ran.of(ObserverDetached)
    assert detached.source.startswith("Broken of")
    assert {"event": "deaf", "gradients": "blind"}[where] in detached.error
    assert any("Broken of" in line for line in ran.report.detached)
    log = (ran.folder / "logs" / "rank-0.log").read_text()
    assert "RuntimeError" in log


@pytest.mark.parametrize("where", ["event", "gradients"])
def test_a_strict_run_ends_with_the_first_failure_of_an_observer(bench, where):
    ran = bench.run(bench.use("Broken", where=where), train={"steps": 5, "strict": True})
    assert isinstance(ran.error, NlpkernelError)
    assert "Broken of" in str(ran.error)


def test_components_are_closed_in_reverse_order(bench):
    names = ["a", "b", "c"]
    bench.run(*[bench.use("Closer", name=name) for name in names])
    assert BOOKS["closed"] == [("c",), ("b",), ("a",)]


@pytest.mark.parametrize("poisoned", [[], list(range(64))], ids=["after success", "after a failure"])
def test_one_that_does_not_close_keeps_nobody_else_from_closing(bench, poisoned, caplog):
    closers = [bench.use("Closer", name=name, fails=name == "b") for name in "abc"]
    with caplog.at_level(logging.INFO):
        ran = bench.run(*closers, data={"poisoned": poisoned})
    assert BOOKS["closed"] == [("c",), ("b",), ("a",)]
    if poisoned:
        # The cause is not hidden by what it led to.
        assert isinstance(ran.error, TrainingError)
        assert "b does not close" in caplog.text
    else:
        assert isinstance(ran.error, ComponentFailure)
        assert "close failed: RuntimeError: b does not close" in str(ran.error)


def test_everything_is_closed_where_opening_fails(bench):
    train = {"partial": "drop", "batch": 1000}
    bench.run(bench.use("Closer", name="a"), train=train)
    assert BOOKS["closed"] == [("a",)]
