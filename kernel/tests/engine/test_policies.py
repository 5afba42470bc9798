"""The policies that the kernel brings."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.builtin.policies import Budget, EarlyStopping, Spike
from nlpkernel.errors import TrainingError
from nlpkernel.events import Decided, Logged, StepCompleted, WindowSkipped
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel.progress import Progress


def stops_at(policy: EarlyStopping, values: list[float | None]) -> int | None:
    """The evaluation (from 1) after which a policy stops."""
    for index, value in enumerate(values):
        answer = policy.decide(metrics={"validation/loss": value})
        if answer is not None:
            assert answer.action is Action.STOP
            return index + 1
    return None


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ([3.0, 2.0, 2.5, 1.9, 2.0, 2.0], 6),
        ([2.0, 2.0, 2.0], 3),
        ([math.nan, math.nan], 2),
        ([2.0, math.nan, math.nan], 3),
        ([2.0, math.nan, 1.0, math.nan], None),
        ([math.nan, 5.0, 4.0], None),
        ([2.0, None, None], 3),
        ([3.0, 2.0, 1.0, 0.0], None),
        ([-1.0, -2.0, -1.5, -1.5], 4),
        ([math.inf, 3.0, math.inf, math.inf], 4),
    ],
)
def test_early_stopping_counts_what_is_not_better(values, end):
    assert stops_at(EarlyStopping(patience=2), values) == end


def test_early_stopping_where_larger_is_better():
    assert stops_at(EarlyStopping(patience=3, better="larger"), [0.50, 0.60, 0.59, 0.58, 0.57]) == 5
    assert stops_at(EarlyStopping(patience=2, better="larger"), [0.1, 0.2, 0.2, 0.2]) == 4


def test_early_stopping_asks_for_a_least_gain():
    values = [2.0, 1.9, 1.8, 1.7]
    assert stops_at(EarlyStopping(patience=2, least=0.5), values) == 3
    assert stops_at(EarlyStopping(patience=2, least=0.05), values) is None


def test_early_stopping_counts_evaluations_and_not_steps():
    policy = EarlyStopping(patience=1)
    assert policy.decide(metrics={"validation/loss": 1.0}) is None
    assert all(policy.decide(metrics={"loss": 9.0}) is None for _ in range(5))
    assert policy.decide(metrics={"validation/loss": 1.0}) is not None


def test_early_stopping_ends_a_run(bench):
    policy = {"use": "early-stopping", "patience": 2}
    train = {"steps": 20, "evaluate": {"every": 1}, "policy": [policy]}
    # A rate this small changes no weight: no evaluation is better than the first.
    ran = bench.run(train=train, optimizer={"lr": 1e-30})
    assert (ran.report.status, ran.report.progress.step) == ("stopped", 3)
    assert ran.report.best_step == 1


def test_a_budget_of_tokens_ends_a_run_at_the_first_step_beyond_it(bench):
    train = {"steps": 20, "policy": [{"use": "budget", "tokens": 100}]}
    ran = bench.run(train=train)
    # 8 rows of 4 numbers a step.
    assert ran.report.progress.tokens == 128
    assert ran.report.reason.startswith("the budget of 100 tokens is used up (budget of nlpkernel")


def test_a_budget_of_time_ends_a_run(bench):
    ran = bench.run(train={"steps": 20, "policy": [{"use": "budget", "time": 1e-9}]})
    assert ran.report.progress.step == 1
    assert "the budget of 1e-09 s is used up" in ran.report.reason


def test_a_budget_of_time_counts_all_processes_of_a_run(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first = Budget(time=60.0)
    now += 500  # The plan was read long before the run.
    first.subscribe()
    now += 40
    assert first.decide(progress=Progress(), metrics={"loss": 1.0}) is None
    state = first.state()
    now += 1000
    second = Budget(time=60.0)
    second.subscribe()
    second.load_state(state)
    now += 19
    assert second.decide(progress=Progress(), metrics={"loss": 1.0}) is None
    now += 1
    answer = second.decide(progress=Progress(), metrics={"loss": 1.0})
    assert answer is not None
    assert answer.action is Action.STOP


def test_a_roll_back_gives_no_time_back_and_counts_none_twice(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    policy = Budget(time=60.0)
    policy.subscribe()
    now += 10
    state = policy.state()
    now += 49
    policy.load_state(state)
    assert policy.decide(progress=Progress(), metrics={"loss": 1.0}) is None
    now += 1
    assert policy.decide(progress=Progress(), metrics={"loss": 1.0}) is not None


def test_a_budget_survives_a_resume(bench):
    """Stopped by the budget, the run stays stopped; with a larger one it goes on."""
    plan = {"checkpoint": bench.use("Shelf")}

    def train(tokens):
        return {"steps": 20, "policy": [{"use": "budget", "tokens": tokens}]}

    bench.run(train=train(64), **plan)
    again = bench.run(train=train(64), resume="newest", **plan)
    assert again.of(StepCompleted) == []
    assert "the budget of 64 tokens is used up" in again.report.reason
    more = bench.run(train=train(128), resume="newest", **plan)
    assert more.report.progress.tokens == 128


def logged(losses: list[float | None], before: int = 0) -> Logged:
    """The log of so many steps after `before`."""
    step = before + len(losses)
    return Logged(
        time=0.0,
        progress=Progress(step=step),
        steps=len(losses),
        metrics={},
        losses=tuple(losses),
        seconds=1.0,
        tokens=1,
        samples=1,
        skipped=0,
        memory=0,
    )


def heard(policy: Spike, losses: list[float | None], before: int = 0) -> Decision | None:
    """What it decides after a log."""
    policy._heard(logged(losses, before))
    return policy.decide(metrics={"loss": 1.0})


STEADY = [2.0, 2.2, 1.9, 2.1, 2.0, 2.1, 1.9, 2.0]


def test_a_leap_is_found_where_it_begins():
    policy = Spike(after=8, history=8, skip=2)
    assert heard(policy, STEADY) is None
    answer = heard(policy, [2.1, 9.0, 12.0, 2.0], before=8)
    assert answer is not None
    assert (answer.action, answer.windows) == (Action.ROLLBACK, (9, 10))
    assert answer.reason.startswith("the loss of step 10 leapt to 9 from 2.0")
    assert policy.decide(metrics={}) is None, "it is said once"


@pytest.mark.parametrize(
    "losses",
    [[2.1, 1.8, 2.3], [1.0, 0.5, 0.1], [None, math.nan, math.inf, 2.0]],
    ids=["as before", "a fall", "nothing that was computed"],
)
def test_what_is_no_leap(losses):
    policy = Spike(after=8, history=8)
    assert heard(policy, STEADY + losses) is None


def test_the_first_steps_are_not_judged():
    assert heard(Spike(after=10, history=8), [*STEADY, 50.0]) is None


@settings(max_examples=50, deadline=None)
@given(losses=st.lists(st.floats(0, 100), min_size=1, max_size=40), cut=st.integers(0, 40))
def test_what_a_spike_policy_knows_does_not_depend_on_the_log_interval_or_a_resume(losses, cut):
    whole, first, rest = (Spike(after=1000) for _ in range(3))
    heard(whole, losses)
    heard(first, losses[:cut])
    rest.load_state(first.state())
    heard(rest, losses[cut:], before=min(cut, len(losses)))
    assert rest.state() == whole.state()


@pytest.mark.parametrize("every", [1, 4])
def test_a_spike_takes_the_run_back_and_leaves_its_window_out(bench, every):
    sums = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 40.0, 1.0, 1.1]
    policy = [{"use": "spike", "after": 6, "history": 8}]
    ran = bench.sums(
        sums,
        [1.0] * 12,
        train={"steps": 12, "batch": 1, "log": {"every": every}, "policy": policy},
        optimizer={"lr": 1e-6},
        checkpoint=bench.use("Shelf", every=4),
    )
    assert ran.error is None
    (decided,) = ran.of(Decided)
    assert decided.action == "rollback"
    assert decided.reason.startswith("the loss of step 10 leapt to 40 from ")
    counts = {count.what: count.number for count in ran.report.counts}
    assert counts == {"roll-backs": 1, "windows skipped: spike": 1}
    assert (ran.report.progress.step, ran.report.progress.updates) == (12, 11)
    assert [event.step for event in ran.of(WindowSkipped)] == [9]


def test_a_spike_can_end_the_run(bench):
    policy = [{"use": "spike", "after": 3, "action": "stop"}]
    train = {"steps": 8, "batch": 1, "log": {"every": 1}, "policy": policy}
    ran = bench.sums(
        [1.0, 1.1, 0.9, 1.0, 40.0, 1.0, 1.0, 1.0], [1.0] * 8, train=train, optimizer={"lr": 1e-6}
    )
    assert isinstance(ran.error, TrainingError)
    assert "NK403 the loss of step 5 leapt to 40" in str(ran.error)


def test_a_roll_back_goes_to_the_version_that_this_process_went_on_from(bench):
    """Later versions of another line are none of its own."""
    plan = {"train": {"steps": 6, "batch": 8}, "checkpoint": bench.use("Shelf", every=2)}
    bench.run(**plan)
    script = bench.use("Script", at={"3": "ROLLBACK"}, always=False)
    ran = bench.run(script, resume="step-0002", **plan)
    assert ran.error is None
    assert [event.progress.step for event in ran.of(StepCompleted)] == [3, 3, 4, 5, 6]
