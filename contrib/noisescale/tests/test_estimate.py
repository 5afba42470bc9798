"""Gradients of a known noise scale: g = G + (noise of each of n samples, averaged)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_noise_scale.estimate import Means, of_part, of_two, square

WIDTH, SIGNAL, DEVIATION = 200, 0.5, 1.5
#: Of one sample: the trace of the covariance, and the noise scale.
TRACE = WIDTH * DEVIATION**2
SCALE = TRACE / SIGNAL**2


def batches(seed):
    """A function that gives the mean gradient of n samples."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(WIDTH, generator=generator)
    true *= SIGNAL / true.norm()

    def mean(n):
        noise = torch.randn(WIDTH, generator=generator) * DEVIATION / math.sqrt(n)
        return true + noise

    return mean


def named(gradient):
    return [("a", gradient[:50]), ("b", gradient[50:].reshape(3, 50))]


def test_a_part_and_the_whole_find_the_known_scale():
    mean, means = batches(1), Means(0.999)
    for _ in range(3000):
        part, rest = mean(256), mean(768)
        whole = (256 * part + 768 * rest) / 1024
        means.add(*of_part(square(named(part)), square(named(whole)), 256, 1024))
    noise, signal = means.read()
    assert noise == pytest.approx(TRACE, rel=0.03)
    assert noise / signal == pytest.approx(SCALE, rel=0.15)


def test_two_batches_after_one_another_find_the_known_scale():
    mean, means = batches(2), Means(0.999)
    for number in range(6000):
        size = 512 if number % 3 else 300
        means.pair(named(mean(size)), size)
    noise, signal = means.read()
    assert noise == pytest.approx(TRACE, rel=0.03)
    assert noise / signal == pytest.approx(SCALE, rel=0.15)


@given(
    b=st.integers(1, 50),
    c=st.integers(1, 50),
    seed=st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_both_formulas_have_the_mean_that_they_should(b, c, seed):
    # E |g|^2 = |G|^2 + tr(S) / n is put in for the squared norms.
    signal, noise = 0.1 + seed, 3.0 + seed / 7
    whole = b + c
    found = of_part(torch.tensor(signal + noise / b), torch.tensor(signal + noise / whole), b, whole)
    assert [float(each) for each in found] == pytest.approx([noise, signal], rel=1e-2)
    # Two batches whose noise is orthogonal to the signal and to each other.
    one = torch.tensor([math.sqrt(signal), math.sqrt(noise / b), 0.0])
    other = torch.tensor([math.sqrt(signal), 0.0, math.sqrt(noise / c)])
    found = of_two({"w": one}, [("w", other)], b, c)
    assert [float(each) for each in found] == pytest.approx([noise, signal], rel=1e-3)


def test_the_quotient_of_means_is_not_the_mean_of_quotients():
    means = Means(0.5)
    for noise, signal in ((4.0, 1.0), (1.0, 4.0)):
        means.add(torch.tensor(noise), torch.tensor(signal))
    # Weights 1/4 and 1/2 of a whole of 3/4.
    assert means.read() == pytest.approx((2.0, 3.0))


def test_what_is_not_finite_is_left_out():
    means = Means(0.9)
    means.add(torch.tensor(8.0), torch.tensor(2.0))
    means.add(torch.tensor(torch.nan), torch.tensor(2.0))
    means.add(torch.tensor(1.0), torch.tensor(torch.inf))
    assert means.read() == pytest.approx((8.0, 2.0))
    assert Means(0.9).read() is None


def test_a_parameter_that_one_of_two_lacks_counts_as_zeros():
    noise, signal = of_two({"a": torch.ones(2)}, [("b", torch.ones(3))], 1, 1)
    assert (float(noise), float(signal)) == (2.5, 0.0)


def test_the_state_goes_on_in_the_middle_of_a_pair():
    mean, first = batches(3), Means(0.9)
    for size in (4, 6, 5):
        first.pair(named(mean(size)), size)
    state = dict(first.state())
    assert {"means", "size", "before/a", "before/b"} == state.keys()
    second = Means(0.9)
    second.load_state(state)
    last = named(mean(7))
    first.pair(last, 7)
    second.pair(last, 7)
    assert torch.equal(first.state()["means"], second.state()["means"])
    assert first.state().keys() == {"means", "size"}
    with pytest.raises(ValueError, match="running means"):
        Means(0.9).load_state({"size": 1.0})
