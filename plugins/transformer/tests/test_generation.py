"""The cache against the full forward, and the decoding loop."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import NlpkernelError, UsageError
from nlpkernel_transformer.generation import Sampling, choose, sample

BOTH = pytest.mark.parametrize("name", ["gpt", "llama"])
#: The vocabulary is the test codec's: bytes and an end-of-text id.
TINY = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 257, "window": 16, "init_std": 0.3}


@pytest.fixture(scope="module")
def tiny(make: Any) -> Any:
    models = {name: make(name, **TINY).module.eval() for name in ("gpt", "llama")}
    return models.__getitem__


@BOTH
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@settings(max_examples=15, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=8), rows=st.integers(1, 3), seed=st.integers(0, 99)
)
def test_prefill_and_decode_give_the_logits_of_the_full_forward(
    make: Any, name: str, attention: str, cuts: list[int], rows: int, seed: int
) -> None:
    module = make(name, **TINY, attention=attention).module.eval()
    ends = [end for end in itertools.accumulate(cuts) if end <= 16]
    tokens = torch.randint(0, 257, (rows, ends[-1]), generator=torch.Generator().manual_seed(seed))
    full = module(tokens).logits.detach()
    logits, cache = module.prefill(tokens[:, : ends[0]])
    torch.testing.assert_close(logits, full[:, ends[0] - 1], atol=1e-5, rtol=1e-5)
    for start, end in itertools.pairwise(ends):
        logits, cache = module.decode(tokens[:, start:end], cache)
        torch.testing.assert_close(logits, full[:, end - 1], atol=1e-5, rtol=1e-5)
    assert cache.length == ends[-1]


def test_a_full_cache_is_refused(tiny: Any) -> None:
    _, cache = tiny("gpt").prefill(torch.zeros(1, 3, dtype=torch.long), capacity=4)
    tiny("gpt").decode(torch.zeros(1, 1, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="holds 4 of 4 positions; 1 more"):
        tiny("gpt").decode(torch.zeros(1, 1, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="17 positions"):
        tiny("gpt").prefill(torch.zeros(1, 3, dtype=torch.long), capacity=17)


def test_memory_of_the_cache_is_taken_once(tiny: Any) -> None:
    _, cache = tiny("llama").prefill(torch.zeros(1, 3, dtype=torch.long))
    before = cache.layers[0]._keys.data_ptr()
    assert cache.layers[0]._keys.shape == (1, 2, 16, 8)
    for _ in range(13):
        tiny("llama").decode(torch.zeros(1, 1, dtype=torch.long), cache)
    assert cache.layers[0]._keys.data_ptr() == before


class Unending:
    """The codec of the tests without an end-of-text id."""

    def __init__(self, codec: Any) -> None:
        self.end = None
        self.encode, self.decode = codec.encode, codec.decode


def _greedy_reference(module: Any, ids: list[int], count: int) -> list[int]:
    """Full forwards, and the sliding window as `sample` documents it."""
    window, out = ids[-16:], []
    for _ in range(count):
        token = int(module(torch.tensor([window])).logits[0, -1].argmax())
        out.append(token)
        window = [*window, token]
        if len(window) > 16:
            window = window[-12:]
    return out


@BOTH
@pytest.mark.parametrize(
    "prompt", ["a", "0123456789abcde", "0123456789abcdef", "a prompt longer than the context"]
)
def test_greedy_text_is_that_of_full_forwards_also_past_the_context(
    tiny: Any, codec: Any, name: str, prompt: str
) -> None:
    endless = Unending(codec)
    reference = _greedy_reference(tiny(name), codec.encode(prompt), 40)
    text = sample(tiny(name), endless, prompt, Sampling(tokens=40, temperature=0))
    assert "".join(text) == codec.decode(reference)
    assert (text.tokens, text.reason) == (40, "length")


@BOTH
def test_the_seed_decides_the_text(tiny: Any, codec: Any, name: str) -> None:
    def text(seed: int) -> str:
        return "".join(sample(tiny(name), codec, "ab", Sampling(tokens=30, temperature=1.5, seed=seed)))

    assert text(1) == text(1)
    assert text(1) != text(2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    text(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_iterating_again_gives_the_same_pieces(tiny: Any, codec: Any) -> None:
    text = sample(tiny("gpt"), codec, "ab", Sampling(tokens=20, temperature=1.0))
    first = (list(text), text.tokens, text.reason)
    assert (list(text), text.tokens, text.reason) == first


class Scripted:
    """A model that says what it is told to."""

    context = 8

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.read: list[list[int]] = []

    def prefill(self, tokens: torch.Tensor, capacity: int | None = None) -> tuple[torch.Tensor, Any]:
        self.read.append(tokens[0].tolist())
        return self._next(), object()

    def decode(self, tokens: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        self.read.append(tokens[0].tolist())
        return self._next(), cache

    def _next(self) -> torch.Tensor:
        logits = torch.zeros(1, 257)
        logits[0, self.ids[len(self.read) - 1]] = 1
        return logits


def test_the_end_token_ends_the_text_and_is_no_part_of_it(codec: Any) -> None:
    text = sample(Scripted([*b"hi", 256, *b"x"]), codec, "p", Sampling(temperature=0))
    assert list(text) == ["h", "i"]
    assert (text.tokens, text.reason) == (2, "end")


def test_a_stop_text_ends_the_text_before_it(codec: Any) -> None:
    text = sample(Scripted([*b"hi\n\nx"]), codec, "p", Sampling(temperature=0, stop=("\n\n",)))
    assert list(text) == ["h", "i"]
    assert (text.tokens, text.reason) == (4, "stop")


def test_half_a_character_at_the_end_is_said(codec: Any) -> None:
    text = sample(Scripted([*"€".encode()]), codec, "p", Sampling(temperature=0, tokens=2))
    assert list(text) == ["\ufffd"]


def test_the_window_slides_to_its_last_three_quarters(codec: Any) -> None:
    model = Scripted([*b"abcdefghijkl"])
    assert "".join(sample(model, codec, "1234567", Sampling(temperature=0, tokens=6))) == "abcdef"
    assert model.read == [[*b"1234567"], [*b"a"], [*b"4567ab"], [*b"c"], [*b"d"], [*b"7abcde"]]


def test_an_empty_prompt_starts_at_the_end_of_text(codec: Any) -> None:
    model = Scripted([*b"a"])
    list(sample(model, codec, "", Sampling(temperature=0, tokens=1)))
    assert model.read == [[256]]


def test_an_empty_prompt_without_an_end_of_text_is_refused(codec: Any) -> None:
    with pytest.raises(UsageError, match="TRF002"):
        sample(Scripted([]), Unending(codec), "", Sampling())


# -- the draw -----------------------------------------------------------------------------------------------------


def _drawn(logits: list[float], count: int = 200, **options: Any) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return [choose(torch.tensor(logits), Sampling(**options), generator) for _ in range(count)]


def test_top_k_draws_among_the_k_likeliest() -> None:
    assert set(_drawn([1.0, 3.0, 2.0, 2.5], temperature=1, top_k=2)) == {1, 3}
    assert set(_drawn([1.0, 1.1, 1.2], temperature=1, top_k=9)) == {0, 1, 2}


def test_top_p_draws_among_the_fewest_that_reach_it() -> None:
    logits = [math.log(chance) for chance in (0.1, 0.5, 0.15, 0.25)]
    assert set(_drawn(logits, temperature=1, top_p=0.5)) == {1}
    assert set(_drawn(logits, temperature=1, top_p=0.7)) == {1, 3}
    assert set(_drawn(logits, temperature=1, top_p=0.8)) == {1, 2, 3}
    assert set(_drawn(logits, temperature=1, top_p=1e-9)) == {1}
    # Of the two that top_k leaves, the first alone has 2/3.
    assert set(_drawn(logits, temperature=1, top_k=2, top_p=0.6)) == {1}


def test_draws_follow_the_softmax_at_the_temperature() -> None:
    drawn = _drawn([0.0, 1.0], count=4000, temperature=0.5)
    assert sum(drawn) / len(drawn) == pytest.approx(1 / (1 + math.exp(-2)), abs=0.02)


def test_temperature_zero_takes_the_likeliest_and_a_tiny_one_does_too() -> None:
    assert set(_drawn([1.0, 3.0, 2.0], count=5, temperature=0)) == {1}
    assert set(_drawn([1.0, 3.0, 2.0], count=5, temperature=1e-40)) == {1}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_an_error(bad: float) -> None:
    for temperature in (0, 1):
        with pytest.raises(NlpkernelError, match="TRF004"):
            _drawn([0.0, bad, 1.0], temperature=temperature)


def test_a_token_that_is_masked_out_is_never_drawn() -> None:
    assert set(_drawn([0.0, -math.inf, 0.0], temperature=1)) == {0, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "--tokens is 0"),
        ({"temperature": -0.1}, "--temperature is -0.1"),
        ({"temperature": math.nan}, "--temperature is nan"),
        ({"top_k": 0}, "--top-k is 0"),
        ({"top_p": 0.0}, "--top-p is 0.0"),
        ({"top_p": 1.1}, "--top-p is 1.1"),
        ({"seed": -1}, "--seed is -1"),
        ({"stop": ("",)}, "--stop is empty"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Sampling(**options)
    assert caught.value.problems[0].code == "TRF005"
