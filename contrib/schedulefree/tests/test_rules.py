"""The optimizers against the formulas of the paper, written out in float64 with all three points kept."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nlpkernel_schedule_free.rules import AdamW, Sgd

BETA, BETA2, EPS = 0.9, 0.99, 1e-8


def reference(start, gradient_of, rates, *, adamw, decay, beta=BETA):
    """x, y and z after these rates, and all z, by the formulas as the paper has them."""
    z, x = start.double().clone(), start.double().clone()
    v, squares, path = torch.zeros_like(z), 0.0, []
    for t, rate in enumerate(rates, 1):
        y = (1 - beta) * z + beta * x
        g = gradient_of(y, t)
        if adamw:
            v = BETA2 * v + (1 - BETA2) * g**2
            direction = g / ((v / (1 - BETA2**t)).sqrt() + EPS)
        else:
            direction = g
        z = z - rate * direction - rate * decay * y
        squares += rate**2
        x = (1 - rate**2 / squares) * x + rate**2 / squares * z
        path.append(z)
    return x, (1 - beta) * z + beta * x, z, path


def made(rule, parameter, decay=0.0, beta=BETA):
    groups = [{"params": [parameter], "lr": 1.0, "weight_decay": decay}]
    return Sgd(groups, beta=beta) if rule == "sgd" else AdamW(groups, beta=beta, beta2=BETA2, eps=EPS)


def problem(kind=torch.float32):
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(5, 3, generator=generator)
    noise = torch.randn(80, 5, 3, generator=generator)
    scale = torch.linspace(0.2, 2, 15).reshape(5, 3)
    return start.to(kind), lambda y, t: scale.to(y.dtype) * y + 0.3 * noise[t - 1].to(y.dtype)


def descend(rule, start, gradient_of, rates, **options):
    parameter = nn.Parameter(start.clone())
    optimizer = made(rule, parameter, **options)
    for t, rate in enumerate(rates, 1):
        parameter.grad = gradient_of(parameter.detach(), t)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    return parameter, optimizer


@pytest.mark.parametrize("rule", ["sgd", "adamw"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
def test_the_three_points_are_those_of_the_paper(rule, decay, kind, tolerance):
    start, gradient_of = problem(kind)
    rates = [0.05 * min(1, t / 10) for t in range(1, 81)]
    x, y, z, _ = reference(start, gradient_of, rates, adamw=rule == "adamw", decay=decay)
    parameter, optimizer = descend(rule, start, gradient_of, rates, decay=decay)
    assert torch.allclose(parameter.detach().double(), y, rtol=0, atol=tolerance)
    assert torch.allclose(optimizer.state[parameter]["z"].double(), z, rtol=0, atol=tolerance)
    with optimizer.averaged():
        assert torch.allclose(parameter.detach().double(), x, rtol=0, atol=tolerance)
    # The three are apart, or this would say nothing.
    assert min((x - y).abs().max(), (y - z).abs().max()) > 100 * tolerance


@given(
    rates=st.lists(st.floats(1e-3, 0.3), min_size=1, max_size=12),
    beta=st.floats(0.05, 0.95),
)
@settings(max_examples=40, deadline=None)
def test_the_average_weighs_each_step_by_its_squared_rate(rates, beta):
    start, gradient_of = problem(torch.float64)
    *_, path = reference(start, gradient_of, rates, adamw=False, decay=0.0, beta=beta)
    parameter, optimizer = descend("sgd", start, gradient_of, rates, beta=beta)
    squares = [rate**2 for rate in rates]
    mean = sum(square * z for square, z in zip(squares, path, strict=True)) / math.fsum(squares)
    with optimizer.averaged():
        assert torch.allclose(parameter.detach(), mean, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", ["sgd", "adamw"])
def test_weights_come_back_bit_for_bit_also_where_an_evaluation_fails(rule):
    start, gradient_of = problem()
    parameter, optimizer = descend(rule, start, gradient_of, [0.1] * 7)
    before = parameter.detach().clone()

    def fails():
        with optimizer.averaged():
            assert not torch.equal(parameter, before)
            raise RuntimeError("made up")

    with pytest.raises(RuntimeError, match="made up"):
        fails()
    assert torch.equal(parameter, before)


@pytest.mark.parametrize("rule", ["sgd", "adamw"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_an_update_that_the_device_skips_leaves_no_trace(rule, kind, decay):
    start, gradient_of = problem(kind)
    parameter, optimizer = descend(rule, start, gradient_of, [0.1], decay=decay)
    other, plain = descend(rule, start, gradient_of, [0.1], decay=decay)
    parameter.grad = torch.full_like(parameter, torch.nan)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert torch.equal(parameter, other)
    optimizer.found_inf = torch.zeros(())
    for each, its in ((parameter, optimizer), (other, plain)):
        each.grad = gradient_of(each.detach(), 2)
        its.step()
    assert torch.equal(parameter, other)
    own, kept = optimizer.state[parameter], plain.state[other]
    assert own.keys() == kept.keys()
    assert all(torch.equal(own[name], kept[name]) for name in own)


def test_a_first_update_that_is_skipped_leaves_no_trace_either():
    start, _ = problem()
    parameter = nn.Parameter(start.clone())
    optimizer = made("adamw", parameter)
    parameter.grad = torch.full_like(parameter, torch.inf)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert torch.equal(parameter, start)
    with optimizer.averaged():
        assert torch.allclose(parameter, start, rtol=0, atol=1e-6)
    state = optimizer.state[parameter]
    assert not any(state[name].any() for name in ("updates", "weight", "square"))


def test_gradients_are_divided_by_the_scale_of_torch():
    start, gradient_of = problem()
    parameter, _ = descend("adamw", start, gradient_of, [0.1])
    other = nn.Parameter(start.clone())
    optimizer = made("adamw", other)
    other.grad = gradient_of(other.detach(), 1) * 1024
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.grad_scale = torch.tensor(1024.0)
    optimizer.step()
    assert torch.equal(parameter, other)


def test_a_parameter_without_a_gradient_is_all_three_points():
    start, _ = problem()
    parameter = nn.Parameter(start.clone())
    optimizer = made("sgd", parameter)
    optimizer.step()
    with optimizer.averaged():
        assert torch.equal(parameter, start)
    assert optimizer.lacks_state
