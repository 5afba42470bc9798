from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_precision.component import Fp16
from nlpkernel_precision.scale import LossScale


def loss_scale(**changes: float) -> LossScale:
    values = {"scale": 256.0, "growth": 2.0, "backoff": 0.5, "interval": 2000, "minimum": 1.0}
    return LossScale(**{**values, **changes})


@settings(deadline=None)
@given(
    overflows=st.lists(st.booleans(), max_size=60),
    scale=st.floats(1e-3, 1e38),
    growth=st.floats(1.001, 1e6),
    backoff=st.floats(0.01, 0.99),
    interval=st.integers(1, 5),
)
def test_the_scale_is_that_of_torchs_grad_scaler(
    overflows: list[bool], scale: float, growth: float, backoff: float, interval: int
) -> None:
    theirs = torch.amp.GradScaler(
        "cpu", init_scale=scale, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
    )
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    theirs.scale(torch.ones(1))
    # torch holds its scale in float32 from the start.
    ours = loss_scale(
        scale=theirs.get_scale(), growth=growth, backoff=backoff, interval=interval, minimum=0.0
    )
    for bad in overflows:
        parameter.grad = torch.full((1,), math.inf if bad else 0.0)
        theirs.unscale_(optimizer)
        theirs.step(optimizer)
        theirs.update()
        ours.observe(bad)
        assert ours.scale == theirs.get_scale()
        assert ours.good == theirs.state_dict()["_growth_tracker"]


def test_case_r1_scale_and_counter_go_on_where_they_were(make) -> None:
    before = loss_scale(interval=5)
    for _ in range(3):
        before.observe(False)
    assert before.state() == {"scale": 256.0, "good": 3}
    after = make(Fp16, interval=5)
    assert after.state() == {"scale": 65536.0, "good": 0}
    after.load_state(before.state())
    assert after.state() == {"scale": 256.0, "good": 3}
    after.observe(False)
    assert after.state() == {"scale": 256.0, "good": 4}
    after.observe(False)
    assert after.state() == {"scale": 512.0, "good": 0}


def test_an_overflow_halves_the_scale_and_starts_the_count_again() -> None:
    made = loss_scale(good=7)
    made.observe(True)
    assert made.state() == {"scale": 128.0, "good": 0}


def test_the_scale_stays_between_its_minimum_and_the_largest_float32() -> None:
    low = loss_scale(minimum=100.0)
    for _ in range(5):
        low.observe(True)
    assert low.scale == 100.0
    high = loss_scale(scale=2.0**127, interval=1)
    high.observe(False)
    assert high.state() == {"scale": 2.0**127, "good": 0}


@pytest.mark.parametrize("state", [{}, {"scale": 1.0}, {"scale": 1.0, "good": 1, "more": 1}])
def test_the_state_of_another_precision_is_refused(make, state) -> None:
    with pytest.raises(ValueError, match="not the state of a loss scale"):
        make(Fp16).load_state(state)


def test_a_first_scale_below_the_minimum_is_a_problem() -> None:
    assert [name for name, _ in Fp16(scale=1.0, minimum=2.0).check_settings()] == ["minimum"]
    assert list(Fp16().check_settings()) == []


@settings(deadline=None)
@given(scale=st.floats(1.0, 1e6))
def test_gradients_are_unscaled_as_torch_does_it(scale: float) -> None:
    from nlpkernel_precision.formats import Scaled

    theirs = torch.amp.GradScaler("cpu", init_scale=scale)
    loss = torch.tensor(0.7)
    scaled = theirs.scale(loss)
    ours = Scaled("fp16", torch.float16, "cpu", loss_scale(scale=theirs.get_scale()))
    assert torch.equal(ours.scale(loss), scaled)
    parameter = torch.nn.Parameter(torch.zeros(40))
    gradient = torch.randn(40, generator=torch.Generator().manual_seed(1))
    parameter.grad = gradient.clone()
    theirs.unscale_(torch.optim.SGD([parameter], lr=0.0))
    mine = [gradient.clone(), gradient[:3].clone()]
    ours.unscale(iter(mine))
    assert torch.equal(mine[0], parameter.grad)
    assert torch.equal(mine[1], parameter.grad[:3])
