from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.context import Run
from nlpkernel.errors import PlanError, TrainingError
from nlpkernel.hookspecs.optimizer import Schedule
from nlpkernel.plan.train import Evaluate, Train
from nlpkernel_optim.component import AdamW
from nlpkernel_optim.curves import Curve, cosine, inverse_sqrt, linear, stable_decay
from nlpkernel_optim.plateau import Falling
from nlpkernel_optim.schedules import Constant, Cosine, InverseSqrt, Linear, Plateau, WarmUp, Wsd


@pytest.fixture
def schedule(run: Run) -> Callable[..., Schedule]:
    run.train = Train(evaluate=Evaluate(every=1))

    def build(kind: type[WarmUp], updates: int | None = 10, **settings: Any) -> Schedule:
        made: Schedule = run.ask(kind(**settings), "create_schedule", run=run, updates=updates)
        return made

    return build


def factors(schedule: Schedule, count: int) -> list[float]:
    return [schedule.factor(update) for update in range(count)]


@pytest.mark.parametrize("kind", [Constant, Linear, Cosine, Wsd, InverseSqrt, Plateau])
def test_case_l3_a_warm_up_of_four_updates_is_a_quarter_each(schedule, kind) -> None:
    assert factors(schedule(kind, warmup=4), 4) == [0.25, 0.5, 0.75, 1.0]


def test_case_r1_linear_decay_gives_the_rate_of_every_step(schedule) -> None:
    made = schedule(Linear)
    assert [1e-5 * factor for factor in factors(made, 10)] == [1e-5 * (1 - k / 10) for k in range(10)]


def test_an_optimizer_passes_its_schedule_on(run: Run) -> None:
    made = AdamW(lr=1.0, schedule=Linear()).create_schedule(run=run, updates=4)
    assert factors(made, 5) == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_cosine_is_half_way_in_the_middle_and_ends_at_its_final_rate(schedule) -> None:
    made = schedule(Cosine, updates=12, warmup=2, final=0.1)
    assert made.factor(1) == made.factor(2) == 1.0
    assert made.factor(7) == pytest.approx(0.55, abs=1e-15)
    assert made.factor(12) == made.factor(1000) == 0.1


@pytest.mark.parametrize(
    ("shape", "middle"), [("linear", 0.5), ("cosine", 0.5), ("sqrt", 1 - math.sqrt(0.5))]
)
def test_wsd_is_level_and_then_falls_over_its_last_part(schedule, shape, middle) -> None:
    made = schedule(Wsd, updates=20, warmup=2, decay=8, shape=shape)
    assert factors(made, 13) == [0.5] + [1.0] * 12
    assert made.factor(16) == pytest.approx(middle)
    assert made.factor(20) == 0.0


def test_wsd_decays_over_a_tenth_of_the_run_where_nothing_is_said(schedule) -> None:
    assert factors(schedule(Wsd, updates=100, shape="linear"), 100).count(1.0) == 91
    assert factors(schedule(Wsd, updates=100, decay_fraction=0.5, shape="linear"), 100).count(1.0) == 51


def test_inverse_sqrt_is_that_of_the_transformer_after_the_warm_up(schedule) -> None:
    made = schedule(InverseSqrt, warmup=4)
    for update in range(4, 50):
        assert made.factor(update) == pytest.approx(math.sqrt(4 / update), rel=1e-15)
    assert schedule(InverseSqrt, timescale=100, minimum=0.3).factor(100) == pytest.approx(math.sqrt(0.5))
    assert schedule(InverseSqrt, timescale=1, minimum=0.3).factor(100) == 0.3


def test_a_length_of_its_own_takes_the_place_of_the_runs(schedule) -> None:
    assert factors(schedule(Linear, updates=100, length=4), 6) == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert factors(schedule(Linear, updates=None, length=4), 4) == [1.0, 0.75, 0.5, 0.25]


def test_a_warm_up_may_be_a_part_of_the_run(schedule) -> None:
    assert schedule(Constant, updates=40, warmup_fraction=0.1).factor(0) == 0.25
    assert schedule(Cosine, updates=40, warmup_fraction=0.5, length=8).factor(0) == 0.25


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Linear, {}),
        (Cosine, {}),
        (Wsd, {}),
        (Constant, {"warmup_fraction": 0.1}),
        (InverseSqrt, {"warmup_fraction": 0.1}),
    ],
)
def test_a_schedule_over_an_unknown_length_says_which_settings_give_it(schedule, kind, settings) -> None:
    with pytest.raises(PlanError, match=r"OPT003 .*steps, epochs or tokens in \[train\]"):
        schedule(kind, updates=None, **settings)


@pytest.mark.parametrize("kind", [Constant, InverseSqrt, Plateau])
def test_a_schedule_that_needs_no_length_works_without_one(schedule, kind) -> None:
    assert schedule(kind, updates=None, warmup=2).factor(0) == 0.5


@pytest.mark.parametrize("kind", [Linear, Cosine, Wsd])
def test_a_warm_up_longer_than_the_run_is_said(schedule, notices, kind) -> None:
    made = schedule(kind, updates=4, warmup=8, final=0.5)
    assert factors(made, 4) == [0.125, 0.25, 0.375, 0.5]
    assert made.factor(8) == 0.5
    assert [notice.level for notice in notices] == ["warning"]


def test_a_last_part_longer_than_what_is_left_is_said(schedule, notices) -> None:
    made = schedule(Wsd, updates=10, warmup=4, decay=8, shape="linear")
    assert made.factor(7) == pytest.approx(0.5)
    assert "only 6" in notices[0].message


@pytest.mark.parametrize(
    ("component", "wrong"),
    [
        (Linear(warmup=3, warmup_fraction=0.1), "warmup_fraction"),
        (Wsd(decay=3, decay_fraction=0.1), "decay_fraction"),
    ],
)
def test_the_same_thing_said_twice_is_a_problem(component, wrong) -> None:
    assert [name for name, _ in component.check_settings()] == [wrong]


SPAN = st.integers(1, 500)
PART = st.floats(0, 1)
SHAPES = st.one_of(
    st.builds(lambda s, f: (s, f, lambda n: linear(n, s, f)), SPAN, PART),
    st.builds(lambda s, f: (s, f, lambda n: cosine(n, s, f)), SPAN, PART),
    st.builds(
        lambda s, d, k, f: (s, f, lambda n: stable_decay(n, s, min(d, s), k, f)),
        SPAN,
        SPAN,
        st.sampled_from(["linear", "cosine", "sqrt"]),
        PART,
    ),
    st.builds(lambda t, m: (None, m, lambda n: inverse_sqrt(n, t, m)), SPAN, PART),
)


@settings(deadline=None)
@given(shape=SHAPES, warmup=st.integers(0, 50))
def test_a_curve_rises_to_its_peak_and_never_rises_again(shape: Any, warmup: int) -> None:
    span, final, function = shape
    curve = Curve(warmup, function)
    until = warmup + (span or 600) + 5
    values = factors(curve, until)
    assert all(0 <= value <= 1 for value in values)
    assert values[:warmup] == sorted(values[:warmup])
    assert values[warmup] == 1.0, "the seam: the first update after the warm-up has the peak"
    assert not warmup or values[warmup - 1] == 1.0
    assert all(later <= earlier + 1e-15 for earlier, later in pairwise(values[warmup:]))
    if span is not None:
        assert values[warmup + span :] == [final] * 5
    assert factors(curve, until) == values, "a curve has no memory"


@pytest.mark.parametrize("final", [0.0, 0.3])
@pytest.mark.parametrize(
    "function",
    [
        lambda n, final: linear(n, 10_000, final),
        lambda n, final: cosine(n, 10_000, final),
        lambda n, final: stable_decay(n, 10_000, 5_000, "linear", final),
        lambda n, final: stable_decay(n, 10_000, 5_000, "cosine", final),
        lambda n, final: inverse_sqrt(n, 1_000, final),
    ],
)
def test_the_seams_of_a_curve_are_no_steps(function, final) -> None:
    """Over 10,000 updates no two neighbours differ by more than a thousandth, the warm-up's own step."""
    values = factors(Curve(1000, lambda n: function(n, final)), 11_100)
    assert max(abs(b - a) for a, b in pairwise(values)) <= 1e-3 + 1e-12


@settings(deadline=None)
@given(
    values=st.lists(st.integers(1, 40).map(lambda n: n / 8) | st.just(math.nan), max_size=40),
    mode=st.sampled_from(["min", "max"]),
    relative=st.booleans(),
    patience=st.integers(0, 3),
    cooldown=st.integers(0, 3),
    threshold=st.sampled_from([0.0, 1e-4, 0.25]),
)
def test_plateau_falls_where_torchs_does(values, mode, relative, patience, cooldown, threshold) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        mode=mode,
        factor=0.5,
        patience=patience,
        threshold=threshold,
        threshold_mode="rel" if relative else "abs",
        cooldown=cooldown,
        min_lr=0.125,
    )
    ours = falling(
        mode=mode, relative=relative, patience=patience, cooldown=cooldown, threshold=threshold, minimum=0.125
    )
    for value in values:
        theirs.step(value)
        ours.observe({"validation/loss": value})
        assert ours.factor(0) == optimizer.param_groups[0]["lr"]


def falling(**settings: Any) -> Falling:
    defaults: dict[str, Any] = {
        "warmup": 0,
        "metric": "validation/loss",
        "mode": "min",
        "lower": 0.5,
        "patience": 1,
        "threshold": 0.0,
        "relative": True,
        "cooldown": 0,
        "minimum": 0.0,
    }
    return Falling(**{**defaults, **settings})


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_no_value_is_never_better(value, mode) -> None:
    made = falling(mode=mode, patience=0)
    for number in range(2):
        made.observe({"validation/loss": value})
        assert made.factor(0) == 0.5 ** (number + 1)
    made.observe({"validation/loss": 3.0})
    assert made.state()["best"] == 3.0


def test_a_metric_below_zero_must_get_better_too() -> None:
    made = falling(threshold=0.1, patience=0)
    for value, level in ((-1.0, 1.0), (-1.05, 0.5), (-1.2, 0.5)):
        made.observe({"validation/loss": value})
        assert made.factor(0) == level


def test_plateau_ignores_other_splits_and_refuses_a_metric_that_is_not_there() -> None:
    made = falling(patience=0)
    made.observe({"test/loss": 1.0})
    assert made.state()["bad"] == 0
    with pytest.raises(TrainingError, match=r"OPT005 .*'validation/loss'.*validation/accuracy"):
        made.observe({"validation/accuracy": 1.0})


@settings(deadline=None)
@given(
    before=st.lists(st.integers(0, 5).map(float), max_size=20),
    after=st.lists(st.integers(0, 5).map(float), max_size=20),
)
def test_plateau_goes_on_from_its_state_as_if_unbroken(before: list[float], after: list[float]) -> None:
    whole, first, second = (falling(cooldown=2) for _ in range(3))
    for value in before:
        whole.observe({"validation/loss": value})
        first.observe({"validation/loss": value})
    second.load_state(first.state())
    for value in after:
        whole.observe({"validation/loss": value})
        second.observe({"validation/loss": value})
    assert second.state() == whole.state()
    assert second.factor(3) == whole.factor(3)


def test_the_state_of_another_schedule_is_refused() -> None:
    states: list[tuple[Schedule, Mapping[str, Any]]] = [
        (Curve(0, lambda n: 1.0), falling().state()),
        (falling(), {"level": 1.0}),
    ]
    for schedule, state in states:
        with pytest.raises(ValueError, match="schedule"):
            schedule.load_state(state)
    Curve(0, lambda n: 1.0).load_state({})


@pytest.mark.parametrize(
    ("evaluate", "message"),
    [(Evaluate(), "every"), (Evaluate(every=5, splits=("test",)), "evaluates test")],
)
def test_a_plateau_that_would_never_hear_anything_is_refused(run: Run, evaluate, message) -> None:
    run.train = Train(evaluate=evaluate)
    with pytest.raises(TrainingError, match=f"OPT005 .*{message}"):
        run.ask(Plateau(), "create_schedule", run=run, updates=10)
