"""What compressors do with numbers: nothing is lost, nothing that is no number stays hidden, nothing is kept of a
window that is left out."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.hookspecs.compressor import Span
from nlpkernel_torchdist.compress.component import Bf16, Fp16, Int8, PowerSgd, TopK
from nlpkernel_torchdist.compress.topk import greatest

CPU = torch.device("cpu")
MAKERS = {
    "fp16": Fp16(),
    "bf16": Bf16(),
    "int8": Int8(block=32),
    "topk": TopK(share=0.1),
    "powersgd": PowerSgd(rank=2),
}
#: Those that pay later what they do not send.
FEEDBACK = ("int8", "topk", "powersgd")
SHAPES = {"a": (24, 18), "b": (7,), "c": (40, 12), "d": (), "e": (3, 5, 7)}
SPANS = [Span.whole(name, shape) for name, shape in SHAPES.items()]
ELEMENTS = sum(span.elements for span in SPANS)


def made(name):
    return MAKERS[name].create_compressor(SimpleNamespace(seed=3))


def drawn(seed, elements=ELEMENTS):
    return torch.randn(elements, generator=torch.Generator().manual_seed(seed)) * 1e-2


def add_up(encoders, gradients, scale=None):
    """The sum over workers as an all-reduce of each round, or as everybody's bytes."""
    flats = [gradient.clone() for gradient in gradients]
    if encoders[0].sums:
        for tensors in zip(*(e.rounds(f, scale) for e, f in zip(encoders, flats, strict=True)), strict=True):
            total = torch.stack(list(tensors)).sum(0)
            for tensor in tensors:
                tensor.copy_(total)
        assert all(torch.equal(flat.nan_to_num(7), flats[0].nan_to_num(7)) for flat in flats)
        return flats[0]
    into = torch.zeros(gradients[0].numel())
    wires = [e.encode(f, scale).clone() for e, f in zip(encoders, flats, strict=True)]
    for wire in wires:
        encoders[0].decode(wire, into)
    return into


def flat_owed(compressor):
    owed = compressor.owed()
    return torch.cat([owed.get(s.name, torch.zeros(s.shape)).reshape(-1) for s in SPANS])


@pytest.mark.parametrize("name", FEEDBACK)
@given(seed=st.integers(0, 10**6), workers=st.integers(1, 3), windows=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_what_is_not_sent_is_owed(name, seed, workers, windows):
    compressors = [made(name) for _ in range(workers)]
    encoders = [each.encoder(SPANS, CPU) for each in compressors]
    wanted, got = torch.zeros(ELEMENTS), torch.zeros(ELEMENTS)
    for window in range(windows):
        gradients = [drawn(seed + 10 * window + worker) for worker in range(workers)]
        wanted += sum(gradients)
        got += add_up(encoders, gradients)
        for each in compressors:
            each.settle(False)
    torch.testing.assert_close(got + sum(map(flat_owed, compressors)), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_a_smaller_type_rounds_and_owes_nothing(name):
    compressors = [made(name) for _ in range(2)]
    encoders = [each.encoder(SPANS, CPU) for each in compressors]
    gradients = [drawn(1), drawn(2)]
    torch.testing.assert_close(add_up(encoders, gradients), sum(gradients), rtol=2e-2, atol=1e-4)
    assert not compressors[0].owed()


@pytest.mark.parametrize("name", MAKERS)
def test_the_wire_has_the_bytes_that_were_announced_and_decodes_elsewhere(name):
    encoder, other = made(name).encoder(SPANS, CPU), made(name).encoder(SPANS, CPU)
    gradient, into = drawn(1), torch.ones(ELEMENTS)
    wire = encoder.encode(gradient)
    assert wire.dtype == torch.uint8
    assert wire.numel() == encoder.bytes
    assert encoder.bytes % 4 == 0
    other.decode(wire, into)
    assert (into - 1).norm() <= gradient.norm() * 1.01
    assert torch.dot(into - 1, gradient) > 0.1 * gradient.norm() ** 2
    for wrong in (wire[:-4], wire.view(torch.int8)):
        with pytest.raises(ValueError, match="bytes were to come"):
            other.decode(wrong, into)


@pytest.mark.parametrize("name", ["fp16", "bf16", "powersgd"])
def test_rounds_have_the_bytes_that_were_announced(name):
    encoder = made(name).encoder(SPANS, CPU)
    assert [tensor.nbytes for tensor in encoder.rounds(drawn(1))] == list(encoder.sums)


def test_what_cannot_be_added_up_has_no_rounds():
    encoder = made("topk").encoder(SPANS, CPU)
    assert encoder.sums == ()
    with pytest.raises(TypeError, match="added up"):
        encoder.rounds(drawn(1))


def test_sizes_on_the_wire():
    blocks = math.ceil(ELEMENTS / 32)
    assert made("int8").encoder(SPANS, CPU).bytes == math.ceil((4 * blocks + ELEMENTS) / 4) * 4
    assert made("topk").encoder(SPANS, CPU).bytes == 8 * math.ceil(ELEMENTS / 10)
    # `a` and `c` in two factors of two columns; the others whole.
    whole = 7 + 1 + 3 * 35
    assert made("powersgd").encoder(SPANS, CPU).sums == (4 * (2 * 24 + 2 * 40 + whole), 4 * (2 * 18 + 2 * 12))
    assert made("fp16").encoder(SPANS, CPU).sums == (2 * ELEMENTS,)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 24 * 18 + 3, ELEMENTS - 1])
def test_what_is_no_number_is_seen_by_all_and_leaves_no_trace(name, value, place):
    compressors, untouched = [made(name) for _ in range(2)], [made(name) for _ in range(2)]
    encoders = [each.encoder(SPANS, CPU) for each in compressors]
    others = [each.encoder(SPANS, CPU) for each in untouched]
    good, after = [drawn(1), drawn(2)], [drawn(3), drawn(4)]
    spoilt = [drawn(5), drawn(6)]
    spoilt[1][place] = value
    for window, bad in ((good, False), (spoilt, torch.tensor(1.0)), (spoilt, True)):
        total = add_up(encoders, window)
        assert bool(total.isfinite().all()) == (window is good)
        for each in compressors:
            each.settle(bad)
    add_up(others, good)
    for each in untouched:
        each.settle(torch.tensor(0.0))
    assert torch.equal(add_up(encoders, after), add_up(others, after))


@pytest.mark.parametrize("name", FEEDBACK)
def test_what_is_owed_has_no_loss_scale(name):
    """With another scale in each window the sums are those without, as far as a power of two goes."""
    plain, scaled = made(name), made(name)
    one, other = plain.encoder(SPANS, CPU), scaled.encoder(SPANS, CPU)
    for window, scale in enumerate((2.0**16, 2.0**16, 2.0**5)):
        factor = torch.tensor(scale)
        expected = add_up([one], [drawn(window)])
        got = add_up([other], [drawn(window) * factor], factor)
        torch.testing.assert_close(got / factor, expected, rtol=1e-3, atol=1e-6)
        for each in (plain, scaled):
            each.settle(False)
        torch.testing.assert_close(flat_owed(scaled), flat_owed(plain), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", FEEDBACK)
def test_a_compressor_goes_on_from_its_state_bit_for_bit(name):
    first, second = made(name), made(name)
    encoder = first.encoder(SPANS, CPU)
    for window in range(3):
        add_up([encoder], [drawn(window)])
        first.settle(False)
    owed = {key: value.clone() for key, value in first.owed().items()}
    factors = {key: value.clone() for key, value in first.factors().items()}
    later = second.encoder(SPANS, CPU)
    add_up([later], [drawn(99)])
    second.load(owed, factors)
    assert second.owed().keys() == owed.keys()
    assert all(torch.equal(second.owed()[key], value) for key, value in owed.items())
    assert all(torch.equal(second.factors()[key], value) for key, value in factors.items())
    assert torch.equal(add_up([encoder], [drawn(7)]), add_up([later], [drawn(7)]))


@pytest.mark.parametrize("name", FEEDBACK)
def test_what_is_owed_follows_its_parameters_into_other_stretches(name):
    compressor = made(name)
    encoder = compressor.encoder(SPANS, CPU)
    add_up([encoder], [drawn(1)])
    compressor.settle(False)
    before = flat_owed(compressor).clone()
    assert before.any()
    compressor.encoder(SPANS[2:], CPU)
    assert torch.equal(flat_owed(compressor), before)
    later = compressor.encoder(SPANS[:2], CPU)
    assert torch.equal(flat_owed(compressor), before)
    gradient = drawn(2)[: 24 * 18 + 7]
    into = torch.zeros_like(gradient)
    later.decode(later.encode(gradient), into)
    compressor.settle(False)
    paid = into + flat_owed(compressor)[: gradient.numel()]
    torch.testing.assert_close(paid, gradient + before[: gradient.numel()], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["int8", "topk"])
def test_a_parameter_may_lie_in_several_stretches(name):
    """As in the chunks of a parameter server."""
    compressor = made(name)
    first, second = Span("a", (24, 18), 0, 200), Span("a", (24, 18), 200, 432)
    gradient = drawn(1, 432)
    for window in range(2):
        for span in (first, second):
            compressor.encoder([span], CPU) if window == 0 else None
    encoders = [compressor.encoder([first], CPU), compressor.encoder([second], CPU)]
    into = torch.zeros(432)
    for encoder, part in zip(encoders, (slice(0, 200), slice(200, 432)), strict=True):
        encoder.decode(encoder.encode(gradient[part]), into[part])
    compressor.settle(False)
    owed = compressor.owed()["a"].clone()
    assert owed.shape == (24, 18)
    torch.testing.assert_close(into + owed.view(-1), gradient, rtol=1e-4, atol=1e-6)
    again = made(name)
    again.load({"a": owed}, {})
    again.encoder([second], CPU)
    assert torch.equal(again.owed()["a"], owed)
    again.encoder([first], CPU)
    assert torch.equal(again.owed()["a"], owed)


def test_powersgd_takes_whole_tensors_only():
    assert made("powersgd").need == "whole_tensor"
    with pytest.raises(ValueError, match="whole tensors"):
        made("powersgd").encoder([Span("a", (24, 18), 0, 200)], CPU)


def test_what_is_owed_to_another_shape_is_refused():
    compressor = made("topk")
    compressor.load({"a": torch.ones(3, 3)}, {})
    with pytest.raises(ValueError, match=r"a has the shape \(24, 18\)"):
        compressor.encoder(SPANS, CPU)


def test_what_another_compressor_owed_is_paid_by_one_that_owes_nothing():
    compressor = made("bf16")
    compressor.load({"b": torch.full((7,), 0.5)}, {})
    encoder = compressor.encoder(SPANS, CPU)
    for bad, expected in ((True, 0.5), (False, 0.5), (False, 0.0)):
        total = add_up([encoder], [torch.zeros(ELEMENTS)])
        assert total[432:439].tolist() == [expected] * 7
        compressor.settle(bad)


def test_powersgd_finds_a_matrix_of_low_rank():
    """And its factors get better from window to window, since each begins where the last one ended."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(60, 2, generator=generator) @ torch.randn(2, 50, generator=generator)
    matrix += 0.05 * torch.randn(60, 50, generator=generator)
    compressor = made("powersgd")
    encoder = compressor.encoder([Span.whole("m", (60, 50))], CPU)
    errors = []
    for _ in range(4):
        compressor.load({}, compressor.factors())
        errors.append(float((add_up([encoder], [matrix.view(-1)]) - matrix.view(-1)).norm() / matrix.norm()))
        compressor.settle(False)
    best = float(torch.linalg.svdvals(matrix)[2:].norm() / matrix.norm())
    assert errors[-1] < errors[0]
    assert errors[-1] == pytest.approx(best, rel=0.05)


@given(
    elements=st.sampled_from([1, 100, 70_001]),
    share=st.floats(0.0001, 1),
    seed=st.integers(0, 1000),
    odd=st.sampled_from(["", "nan", "inf", "ties", "zeros", "sorted"]),
)
@settings(max_examples=20, deadline=None)
def test_the_greatest_are_found_exactly(elements, share, seed, odd):
    values = torch.randn(elements, generator=torch.Generator().manual_seed(seed))
    if odd == "ties":
        values = (values * 2).round()
    if odd == "zeros":
        values[: elements // 2] = 0
    if odd == "sorted":
        values = values.sort().values
    if odd in ("nan", "inf"):
        values[seed % elements] = float(odd)
    count = max(1, math.ceil(share * elements))
    places = greatest(values, count)
    assert places.unique().numel() == count
    assert torch.equal(places, places.sort().values)
    expected = values.abs().topk(count).values.sort().values
    torch.testing.assert_close(values[places].abs().sort().values, expected, equal_nan=True, rtol=0, atol=0)


def test_places_out_of_range_are_refused():
    """A parameter server decodes what others send."""
    encoder = made("topk").encoder(SPANS, CPU)
    wire = encoder.encode(drawn(1)).clone()
    wire[:4] = torch.tensor([255, 255, 255, 127], dtype=torch.uint8)
    with pytest.raises((IndexError, RuntimeError)):
        encoder.decode(wire, torch.zeros(ELEMENTS))
