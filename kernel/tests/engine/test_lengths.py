"""How long a run is, and how far it says that it is."""

from __future__ import annotations

import pytest

from nlpkernel.events import Logged, RunStarted, StepCompleted


@pytest.mark.parametrize(
    ("length", "steps"),
    [
        ({"steps": 7}, 7),
        ({"epochs": 1.0}, 3),
        ({"epochs": 2.0}, 6),
        ({"epochs": 0.5}, 2),
        ({"tokens": 40}, 3),
        ({"tokens": 41}, 4),
        ({"tokens": 1}, 1),
        ({"tokens": 80}, 6),
        ({"tokens": "0.08k"}, 6),
    ],
)
def test_steps_epochs_and_tokens(bench, length, steps):
    """10 rows of 4 tokens in batches of 4, 4 and 2."""
    ran = bench.run(data={"rows": 10}, train={"batch": 4, **length})
    assert ran.report.progress.step == ran.report.length == steps
    assert ran.of(RunStarted)[0].steps == steps
    full, rest = divmod(steps, 3)
    assert ran.report.progress.samples == 10 * full + 4 * rest
    assert ran.report.progress.tokens == 4 * ran.report.progress.samples
    assert ran.report.progress.epoch == ran.report.progress.samples / 10


@pytest.mark.parametrize(("partial", "steps"), [("step", 5), ("carry", 4), ("drop", 4)])
def test_tokens_are_at_least_as_many_whatever_becomes_of_partial_windows(bench, partial, steps):
    """56 tokens are 14 rows: 4 + 4 + 2 + 4 hold them all with a window of two to spare under `step`."""
    ran = bench.run(data={"rows": 10}, train={"batch": 4, "tokens": 64, "partial": partial})
    assert ran.report.progress.step == steps
    assert ran.report.progress.tokens >= 64


def test_each_step_says_how_far_the_run_is(bench):
    ran = bench.run(data={"rows": 10}, train={"batch": 4, "steps": 4})
    assert [event.progress for event in ran.of(StepCompleted)] == [
        (1, 1, 4, 16, 0.4),
        (2, 2, 8, 32, 0.8),
        (3, 3, 10, 40, 1.0),
        (4, 4, 14, 56, 1.4),
    ]


@pytest.mark.parametrize("every", [1, 3, 4, 100])
def test_every_step_is_logged_once(bench, every):
    ran = bench.run(train={"steps": 10, "log": {"every": every}})
    logs = ran.of(Logged)
    assert sum(log.steps for log in logs) == 10
    assert sum(log.samples for log in logs) == ran.report.progress.samples
    assert sum(log.tokens for log in logs) == ran.report.progress.tokens
    assert [log.progress.step for log in logs] == [*range(every, 10, every), 10]
    assert all(log.seconds > 0 for log in logs)
    means = [sum(ran.losses[log.progress.step - log.steps : log.progress.step]) / log.steps for log in logs]
    assert ran.logged("loss") == [pytest.approx(mean, rel=1e-6) for mean in means]
