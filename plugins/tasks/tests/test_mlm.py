"""Masked language modelling: what is chosen, and what stands in its place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import DataError, PluginError
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_tasks.masking import Masking
from nlpkernel_tasks.mlm import IGNORED, MaskedModelling
from nlpkernel_tasks.pieces import Pieces

#: Ids: 0 ends (and pads), 1 is unknown, 2 masks, the others are text; odd ones begin words.
VOCABULARY, MASK = 60, 2


class Tokenizer:
    """Letters: "a3" is the id 3."""

    vocabulary = VOCABULARY
    end, pad, unknown = 0, 0, 1
    kind = "WordPiece"

    def encode(self, text: str) -> list[int]:
        return [1]

    def decode(self, ids: list[int]) -> str:
        return "".join("" if each in (0, 2) else f"a{each}" for each in ids)

    def piece(self, number: int) -> str:
        if number < 3:
            return ("[END]", "[UNK]", "[MASK]")[number]
        return f"a{number}" if number % 2 else f"##a{number}"


def masking(words: bool = False, share: float = 0.15, masked: float = 0.8, replaced: float = 0.1) -> Masking:
    return Masking(Pieces.of(Tokenizer(), "[MASK]", words), share, masked, replaced)


def some(rows: int, width: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Tokens with marks among them, lengths and keys."""
    draws = np.random.default_rng(seed)
    tokens = draws.integers(0, VOCABULARY, (rows, width))
    lengths = draws.integers(0, width + 1, rows)
    tokens[np.arange(width) >= lengths[:, None]] = 0
    return tokens, lengths, draws.integers(0, 2**63, rows, dtype=np.uint64)


def chosen_of(made: Any, shape: tuple[int, int]) -> Any:
    found = np.zeros(shape, dtype=bool)
    for row, (at, real) in enumerate(zip(made.at, made.real, strict=True)):
        found[row, at[real]] = True
    return found


@pytest.mark.parametrize("words", [False, True])
def test_case_d1_15_percent_are_chosen_80_10_10_and_never_a_mark_or_padding(words: bool) -> None:
    tokens, lengths, keys = some(6000, 60)
    made = masking(words).apply(tokens, lengths, keys)
    chosen = chosen_of(made, tokens.shape)
    real = (tokens > 2) & (np.arange(60) < lengths[:, None])
    assert not (chosen & ~real).any()
    assert chosen.sum() / real.sum() == pytest.approx(0.15, abs=0.005)
    now, was = made.tokens[chosen], tokens[chosen]
    assert (now == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (now == was).mean() == pytest.approx(0.1 + 0.1 / 57, abs=0.01)
    other = now[(now != MASK) & (now != was)]
    # Any text, and each as often as the others.
    assert other.min() == 3
    frequency = np.bincount(other, minlength=VOCABULARY)[3:] / len(other)
    assert abs(frequency - 1 / 57).max() < 0.01
    assert np.array_equal(made.tokens[~chosen], tokens[~chosen])
    # Every place of a row is as likely as the others, as far as rows reach.
    rate = chosen.sum(axis=0) / np.maximum(real.sum(axis=0), 1)
    assert abs(rate[:50] - 0.15).max() < 0.035


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 6), width=st.integers(1, 40), seed=st.integers(0, 2**20), words=st.booleans())
def test_what_is_chosen_follows_from_the_rows_key_alone_and_is_counted_right(
    rows: int, width: int, seed: int, words: bool
) -> None:
    tokens, lengths, keys = some(rows, width, seed)
    made = masking(words).apply(tokens, lengths, keys)
    chosen = chosen_of(made, tokens.shape)
    assert masking(words).count(tokens, lengths, keys) == chosen.sum() == made.real.sum()
    assert made.at.shape[1] == masking(words).most(width)
    one = seed % rows
    alone = masking(words).apply(tokens[one : one + 1], lengths[one : one + 1], keys[one : one + 1])
    assert np.array_equal(alone.tokens[0], made.tokens[one])
    assert np.array_equal(alone.at[0], made.at[one])
    able = (tokens > 2) & (np.arange(width) < lengths[:, None])
    if not words:
        wanted = 0.15 * able.sum(axis=1)
        assert (abs(chosen.sum(axis=1) - wanted) < 1).all()
    # Padding of another width changes nothing of a row.
    wider = np.pad(tokens, ((0, 0), (0, 5)))
    assert masking().count(wider, lengths, keys) == masking().count(tokens, lengths, keys)


def test_whole_words_are_chosen_together() -> None:
    tokens, lengths, keys = some(300, 40, 3)
    chosen = chosen_of(masking(words=True).apply(tokens, lengths, keys), tokens.shape)
    together = pairs = 0
    for row in range(300):
        for at in range(1, int(lengths[row])):
            # An even id goes on with the word before it; what stands behind a mark begins one.
            if tokens[row, at] > 2 and tokens[row, at] % 2 == 0 and tokens[row, at - 1] > 2:
                assert chosen[row, at] == chosen[row, at - 1]
                pairs += 1
                together += int(chosen[row, at])
    assert pairs > 1000
    assert together > 100


def test_shares_can_be_others() -> None:
    tokens, lengths, keys = some(400, 60)
    made = masking(share=0.4, masked=0.5, replaced=0.5).apply(tokens, lengths, keys)
    chosen = chosen_of(made, tokens.shape)
    assert chosen.sum() / ((tokens > 2) & (np.arange(60) < lengths[:, None])).sum() == pytest.approx(
        0.4, abs=0.01
    )
    assert (made.tokens[chosen] == MASK).mean() == pytest.approx(0.5, abs=0.02)
    assert (made.tokens[chosen] == tokens[chosen]).mean() < 0.02


def test_a_tokenizer_without_mask_or_words_is_refused() -> None:
    with pytest.raises(DataError, match=r"TSK004 the tokenizer has no token '<mask>'"):
        Pieces.of(Tokenizer(), "<mask>", False)

    class Plain(Tokenizer):
        kind = "bytes"

    with pytest.raises(DataError, match="TSK005"):
        Pieces.of(Plain(), "[MASK]", True)


# -- the task


def rows_of(count: int, width: int = 30, seed: int = 0) -> list[dict[str, Any]]:
    tokens, lengths, keys = some(count, width, seed)
    return [
        {"tokens": row[:length], "key": int(key)}
        for row, length, key in zip(tokens, np.maximum(lengths, 8), keys.tolist(), strict=True)
    ]


def test_labels_are_what_stood_there_and_their_number_is_the_weight() -> None:
    task, rows = MaskedModelling(masking()), rows_of(7)
    batch = task.batch(rows)
    counted = batch["labels"] != IGNORED
    assert task.weights(rows) == {"loss": float(counted.sum())}
    for row, at, labels, real in zip(rows, batch["at"], batch["labels"], counted, strict=True):
        assert [row["tokens"][each] for each in at[real].tolist()] == labels[real].tolist()
    assert set(task.inputs(batch)) == {"tokens", "lengths", "at"}


def test_the_loss_is_over_the_chosen_tokens_and_adds_up_over_micro_batches() -> None:
    task, rows = MaskedModelling(masking()), rows_of(7)
    table = torch.randn(VOCABULARY, VOCABULARY, generator=torch.manual_seed(0))

    def outputs(tokens: torch.Tensor, at: torch.Tensor, **_: Any) -> Outputs:
        return Outputs(logits=table[tokens.gather(1, at)])

    def total(parts: list[list[dict[str, Any]]]) -> tuple[float, float]:
        sums = [float(task.loss(outputs(**(batch := task.batch(part))), batch)[0].sum) for part in parts]
        return sum(sums), sum(task.weights(part)["loss"] for part in parts)

    whole = total([rows])
    assert total([rows[:1], rows[1:]]) == pytest.approx(whole, rel=1e-6)
    counts = {name: float(value) for name, value in task.evaluate(outputs, task.batch(rows)).items()}
    assert (counts["loss_sum"], counts["tokens"]) == pytest.approx(whole, rel=1e-6)
    values = task.value(counts)
    assert values["loss"] == pytest.approx(whole[0] / whole[1])
    assert values["perplexity"] == pytest.approx(math.exp(whole[0] / whole[1]))
    assert 0 <= (values["accuracy"] or 0) <= 1
    assert set(task.value({"loss_sum": 0, "tokens": 0, "correct": 0}).values()) == {None}


def test_isolated_documents_have_positions_of_their_own() -> None:
    rows = [
        {"tokens": [5, 6, 7, 8], "documents": [0, 0, 1, 1], "key": 1},
        {"tokens": [9, 9], "documents": [0, 0], "key": 2},
    ]
    batch = MaskedModelling(masking()).batch(rows)
    assert batch["positions"].tolist()[0] == [0, 1, 0, 1]
    assert batch["documents"].tolist() == [[0, 0, 1, 1], [0, 0, -1, -1]]


def test_rows_without_a_key_are_refused() -> None:
    with pytest.raises(PluginError, match="TSK006"):
        MaskedModelling(masking()).weights([{"tokens": [5, 6, 7]}])
