"""Writing texts: beams against all texts that there are, and against transformers' own search; draws against
probabilities."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nlpkernel.sampling import key
from nlpkernel_tasks.component import Seq2seq
from nlpkernel_tasks.decoding import Drawing, Search, _drawn, draw, search
from nlpkernel_tasks.seq2seq import Writing

END, START = 0, 1


class Table:
    """A model of random scores: of each prefix those of the next token, drawn by what the prefix is."""

    context = 64

    def __init__(self, vocabulary: int, sharpness: float = 1.0) -> None:
        self.vocabulary, self.sharpness = vocabulary, sharpness

    def scores(self, source: int, prefix: tuple[int, ...]) -> Tensor:
        seed = hash((source, *prefix)) % (1 << 31)
        return torch.randn(self.vocabulary, generator=torch.Generator().manual_seed(seed)) * self.sharpness

    def encode(self, tokens: Tensor, lengths: Tensor, capacity: int) -> Any:
        return [(int(row[0]), ()) for row in tokens]

    def decode(self, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        cache = [
            (source, (*prefix, token))
            for (source, prefix), token in zip(cache, tokens[:, 0].tolist(), strict=True)
        ]
        return torch.stack([self.scores(*each) for each in cache]), cache

    def select(self, cache: Any, rows: Tensor) -> Any:
        return [cache[row] for row in rows.tolist()]


class Codec:
    """Tokens as they are."""

    end = END

    def decode(self, ids: list[int]) -> Any:
        return list(ids)


def all_texts(model: Table, source: int, how: Search) -> list[tuple[float, list[int]]]:
    """Those that end within the most tokens, and those of the most tokens that do not."""
    found = []
    others = [each for each in range(model.vocabulary) if each != how.end]
    for length in range(how.most + 1):
        for text in itertools.product(others, repeat=length):
            total, prefix = 0.0, (how.start,)
            for token in (*text, how.end)[: how.most]:
                total += float(model.scores(source, prefix).log_softmax(dim=-1)[token])
                prefix = (*prefix, token)
            found.append((how.score(total, len(prefix) - 1), list(text)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("length", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("vocabulary", [3, 4])
def test_enough_beams_find_what_a_search_of_all_texts_finds(vocabulary: int, length: float) -> None:
    model = Table(vocabulary)
    how = Search(start=START, end=END, most=4, beams=vocabulary**4, length=length)
    sources = torch.arange(10)[:, None]
    for source, text in enumerate(search(model, sources, torch.ones(10), how)):
        score, tokens = all_texts(model, source, how)[0]
        assert text.ended == (len(tokens) < how.most)
        assert text.tokens == tokens
        assert text.score == pytest.approx(score, abs=1e-5)


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    model = Table(7)
    how = Search(start=START, end=END, most=9)
    for source, text in enumerate(search(model, torch.arange(20)[:, None], torch.ones(20), how)):
        prefix: tuple[int, ...] = (START,)
        while len(prefix) <= how.most:
            token = int(model.scores(source, prefix).argmax())
            if token == END:
                break
            prefix = (*prefix, token)
        assert text.tokens == list(prefix[1:])
        assert text.ended == (len(prefix) <= how.most)


def test_more_beams_give_texts_of_no_lower_probability_and_rows_do_not_touch_each_other() -> None:
    model = Table(6, 2.0)
    sources, ones = torch.arange(30)[:, None], torch.ones(30)

    def scores(beams: int) -> list[float]:
        how = Search(start=START, end=END, most=12, beams=beams, length=0.0)
        together = search(model, sources, ones, how)
        apart = [search(model, sources[row : row + 1], ones[:1], how)[0] for row in range(30)]
        assert [each.tokens for each in together] == [each.tokens for each in apart]
        return [each.score for each in together]

    # Not of every single text, as beams cut off others, but of all together.
    assert sum(scores(8)) > sum(scores(2)) > sum(scores(1))


@pytest.mark.parametrize("length", [0.0, 1.0])
def test_beams_equal_those_of_transformers(length: float) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=12, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, eos_token_id=END,
        pad_token_id=START, decoder_start_token_id=START, dropout_rate=0.0, initializer_factor=4.0,
    )  # fmt: skip
    network = transformers.T5ForConditionalGeneration(config).eval()

    class Wrapped:
        """Without a cache: what is searched is the same."""

        def encode(self, tokens: Tensor, lengths: Tensor, capacity: int) -> Any:
            return tokens, torch.empty(len(tokens), 0, dtype=torch.long)

        def decode(self, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
            source, read = cache
            read = torch.cat((read, tokens), dim=1)
            return network(input_ids=source, decoder_input_ids=read).logits[:, -1], (source, read)

        def select(self, cache: Any, rows: Tensor) -> Any:
            return tuple(each[rows] for each in cache)

    sources = torch.randint(2, 11, (8, 5), generator=torch.Generator().manual_seed(1))
    # The token that ends a text is one that the network likes to say.
    said = network.generate(sources, max_new_tokens=10, min_new_tokens=10, eos_token_id=None)[:, 1:]
    end = int(said.flatten().bincount().argmax())
    theirs = network.generate(
        sources,
        attention_mask=torch.ones_like(sources),
        eos_token_id=end,
        num_beams=3,
        max_new_tokens=10,
        length_penalty=length,
        early_stopping=False,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    how = Search(start=START, end=end, most=10, beams=3, length=length)
    ours = search(Wrapped(), sources, torch.full((8,), 5), how)
    assert {text.ended for text in ours} == {True, False}
    for text, sequence, score in zip(
        ours, theirs.sequences.tolist(), theirs.sequences_scores.tolist(), strict=True
    ):
        read = sequence[1:]
        assert text.tokens == (read[: read.index(end)] if end in read else read)
        assert text.score == pytest.approx(score, abs=1e-4)


# -- draws ----------------------------------------


def keys(count: int, seed: int = 0) -> list[int]:
    return [key(seed, row) for row in range(count)]


def drawn(model: Table, sources: list[int], how: Search, seeds: list[int], **drawing: Any) -> list[Any]:
    tokens = torch.tensor(sources)[:, None]
    return draw(model, tokens, torch.ones(len(sources)), how, Drawing(**drawing), seeds)


def test_texts_are_drawn_as_often_as_the_model_says_and_scored_by_it() -> None:
    model, how, count = Table(3), Search(start=START, end=END, most=3, length=0.0), 4000
    found = drawn(model, [5] * count, how, keys(count))
    likely = {tuple(tokens): score for score, tokens in all_texts(model, 5, how)}
    assert sum(math.exp(score) for score in likely.values()) == pytest.approx(1, abs=1e-5)
    times = Counter(tuple(text.tokens) for text in found)
    spread = sum(
        (times[text] - count * math.exp(score)) ** 2 / (count * math.exp(score))
        for text, score in likely.items()
    )
    # Chi squared of 14 degrees of freedom: 36 is exceeded once in a thousand.
    assert len(likely) == 15
    assert spread < 36
    for text in found:
        assert text.ended == (len(text.tokens) < how.most)
        assert text.score == pytest.approx(likely[tuple(text.tokens)], abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 2**64 - 1), st.data())
def test_a_draw_is_of_its_row_and_key_alone(sources: list[int], seed: int, data: st.DataObject) -> None:
    model, how = Table(6), Search(start=START, end=END, most=8)
    seeds = keys(len(sources), seed)
    together = drawn(model, sources, how, seeds)
    before = torch.random.get_rng_state()
    order = data.draw(st.permutations(range(len(sources))))
    again = drawn(model, [sources[at] for at in order], how, [seeds[at] for at in order])
    assert [each.tokens for each in again] == [together[at].tokens for at in order]
    for at, source in enumerate(sources):
        assert drawn(model, [source], how, seeds[at : at + 1])[0].tokens == together[at].tokens
    assert torch.equal(torch.random.get_rng_state(), before)


def test_other_keys_give_other_texts_and_a_missing_one_is_refused() -> None:
    model, how = Table(6), Search(start=START, end=END, most=12)
    found = drawn(model, [1] * 50, how, keys(50))
    assert len({tuple(each.tokens) for each in found}) > 25
    with pytest.raises(ValueError, match="1 keys for 2 rows"):
        drawn(model, [1, 2], how, keys(1))


@pytest.mark.parametrize("drawing", [{"temperature": 1e-4}, {"top_k": 1}, {"top_p": 1e-6}])
def test_where_one_token_is_left_a_draw_is_the_greedy_text(drawing: dict[str, Any]) -> None:
    model, how = Table(7), Search(start=START, end=END, most=9)
    greedy = search(model, torch.arange(20)[:, None], torch.ones(20), how)
    for theirs, ours in zip(greedy, drawn(model, list(range(20)), how, keys(20), **drawing), strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.ended == theirs.ended
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)


@pytest.mark.parametrize(
    ("top_k", "top_p"), [(None, 0.3), (None, 0.9), (4, 1.0), (5, 0.7), (100, 0.95), (None, 1.0)]
)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_what_is_drawn_from_equals_transformers(temperature: float, top_k: int | None, top_p: float) -> None:
    transformers = pytest.importorskip("transformers")
    logits = torch.randn(6, 20, generator=torch.Generator().manual_seed(3)) * 2
    theirs = transformers.TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        theirs = transformers.TopKLogitsWarper(top_k)(None, theirs)
    theirs = transformers.TopPLogitsWarper(top_p)(None, theirs).softmax(dim=1)
    # A number in the middle of each of 4000 equal parts: shares are right to one part at each of their two ends.
    numbers = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    drawing = Drawing(temperature=temperature, top_k=top_k, top_p=top_p)
    for row, right in zip(logits, theirs, strict=True):
        chosen = _drawn(row.expand(4000, -1), drawing, numbers)
        shares = chosen.bincount(minlength=20) / 4000
        assert torch.allclose(shares, right, atol=1.01 / 4000)
        assert not shares[right == 0].any()
    last = torch.tensor([1 - 2.0**-53], dtype=torch.float64).expand(6)
    assert (theirs.gather(1, _drawn(logits, drawing, last)[:, None]) > 0).all()


def test_the_task_draws_by_seed_and_first_text_where_it_has_a_temperature() -> None:
    def texts(rows: list[list[int]], seed: int = 1, **drawing: Any) -> list[list[int]]:
        how = Search(start=START, end=END, most=8, beams=2)
        task = Writing(how, 0.0, (), Drawing(**drawing) if drawing else None, seed)
        batch = task.batch([{"tokens": row} for row in rows])
        answers = task.judge(Table(9), batch, Codec()).answers  # type: ignore[arg-type]
        return [answer["text"] for answer in answers]

    rows = [[2, 3], [2, 4, 5], [2, 3], [6]]
    found = texts(rows, temperature=1.0)
    assert found[0] == found[2]
    # Neither the batch, nor its padding, nor its order.
    assert [texts([row], temperature=1.0)[0] for row in rows] == found
    assert texts(rows, seed=2, temperature=1.0) != found
    assert texts(rows, temperature=1e-4) == texts(rows, temperature=1.0, top_k=1) != found
    assert texts(rows) == texts(rows, seed=2)


def test_what_says_how_to_draw_goes_with_a_temperature() -> None:
    assert [name for name, _ in Seq2seq(top_k=5, top_p=0.9).check_settings()] == ["top_k", "top_p"]
    assert not list(Seq2seq(temperature=1, top_k=5, top_p=0.9).check_settings())
    assert not list(Seq2seq().check_settings())
