"""The policies that the kernel brings."""

from __future__ import annotations

import math
import time

import pytest

from nlpkernel.builtin.policies import Budget, EarlyStopping
from nlpkernel.events import StepCompleted
from nlpkernel.hookspecs.everywhere import Action
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
    assert first.decide(progress=Progress()) is None
    state = first.state()
    now += 1000
    second = Budget(time=60.0)
    second.subscribe()
    second.load_state(state)
    now += 19
    assert second.decide(progress=Progress()) is None
    now += 1
    answer = second.decide(progress=Progress())
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
    assert policy.decide(progress=Progress()) is None
    now += 1
    assert policy.decide(progress=Progress()) is not None


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
