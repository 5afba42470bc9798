"""Searching texts: beams against all texts that there are, and against transformers' own search."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from nlpkernel_tasks.decoding import Search, search

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
