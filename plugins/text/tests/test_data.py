"""Opened text: what each step sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.communicator import Requirements
from nlpkernel_text.component import Text
from nlpkernel_text.data import TextData
from nlpkernel_text.reading.components import Auto
from nlpkernel_text.samplers.components import Order, Random
from nlpkernel_text.tokenizers.components import Bpe, Bytes, Characters

from .conftest import COMPONENTS

Write = Callable[[str, str | bytes], Path]
Open = Callable[..., TextData]

ALPHABET = "".join(chr(number) for number in range(33, 127))


def tokens(data: TextData, first: int, last: int) -> list[list[int]]:
    rows: list[list[int]] = []
    for step in range(first, last):
        for index in range(len(data.window(step))):
            rows += data.microbatch(step, index)["tokens"].tolist()
    return rows


def test_a_batch_is_tokens_and_the_ones_that_follow(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", ALPHABET), window=10, sampling=Order(), train={"batch": 4, "micro": 2})
    assert [(each.samples, each.tokens, each.weights) for each in data.window(0)] == [
        (2, 20, {"loss": 20.0})
    ] * 2
    batch = data.microbatch(0, 1)
    assert {name: tensor.dtype for name, tensor in batch.items()} == {
        "tokens": torch.int64,
        "labels": torch.int64,
    }
    assert bytes(batch["tokens"][0].tolist()).decode() == ALPHABET[20:30]
    assert bytes(batch["labels"][1].tolist()).decode() == ALPHABET[31:41]
    assert batch["tokens"].is_contiguous()
    # 94 characters and the end: ten rows, the last of which has 4 labels, of which the end is the last.
    assert data.info.splits["train"].samples == 10
    last = data.microbatch(2, 0)
    assert last["labels"][1].tolist() == [*ALPHABET[91:].encode(), 256] + [-100] * 6
    assert [each.tokens for each in data.window(2)] == [14]


def test_windows_are_a_function_of_seed_and_step(write: Write, open_text: Open) -> None:
    path = write("a.txt", ALPHABET * 10)
    settings: dict[str, Any] = {"window": 10, "train": {"batch": 8, "micro": 4, "seed": 3}}
    unbroken = tokens(open_text(path, **settings), 0, 30)
    resumed = open_text(path, **settings)
    # Windows of the first epoch are full: 94 rows, 8 a window.
    assert tokens(resumed, 5, 9) == unbroken[5 * 8 : 9 * 8]
    assert tokens(resumed, 17, 30) == unbroken[len(tokens(resumed, 0, 17)) :]
    other = open_text(path, window=10, train={"batch": 8, "micro": 4, "seed": 4})
    assert tokens(other, 0, 30) != unbroken


@pytest.mark.parametrize("sampling", ["shuffle", "order", "random"])
def test_micro_batches_of_another_size_hold_the_same_rows(
    write: Write, open_text: Open, sampling: str
) -> None:
    path = write("a.txt", ALPHABET * 10)
    found = [
        tokens(open_text(path, window=10, sampling=sampling, train={"batch": 12, "micro": micro}), 0, 10)
        for micro in (None, 5, 1)
    ]
    assert found[0] == found[1] == found[2]


def test_case_r3_each_row_is_seen_once_in_each_epoch(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", ALPHABET), window=10, train={"batch": 3, "seed": 1})
    each = data.steps(epochs=1)
    assert each == 4
    epochs = [sorted(tokens(data, epoch * each, (epoch + 1) * each)) for epoch in range(3)]
    assert epochs[0] == epochs[1] == epochs[2]
    assert len({tuple(row) for row in epochs[0]}) == 10
    assert tokens(data, 0, each) != tokens(data, each, 2 * each)
    assert data.epoch(2 * each) == 2.0


def test_case_r4_random_windows_go_on_after_a_resume(write: Write, open_text: Open) -> None:
    path = write("a.txt", "".join(np.random.default_rng(0).permutation(list(ALPHABET * 50))))
    settings: dict[str, Any] = {"window": 16, "sampling": "random", "train": {"batch": 4, "seed": 1337}}
    unbroken = tokens(open_text(path, **settings), 0, 20)
    assert (
        tokens(open_text(path, **settings), 10, 15) + tokens(open_text(path, **settings), 15, 20)
        == unbroken[40:]
    )
    assert not {tuple(row) for row in unbroken[:40]} & {tuple(row) for row in unbroken[40:]}


def test_random_rows_begin_anywhere_and_are_always_full(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", ALPHABET), window=90, sampling=Random(), train={"batch": 16})
    begins = {row[0] for row in tokens(data, 0, 20)}
    # 95 tokens with the end: a row of 91 begins at one of five places.
    assert begins == set(ALPHABET[:5].encode())
    # Every window is full, also where an epoch has fewer rows.
    assert data.info.splits["train"].samples == 2
    assert [each.tokens for each in data.window(0)] == [16 * 90]
    assert (data.epoch(1), data.steps(epochs=16), data.steps(tokens=16 * 90 * 3)) == (8.0, 2, 3)


@pytest.mark.parametrize("sampling", ["shuffle", "random"])
def test_text_that_is_shorter_than_a_row_is_one_short_row(
    write: Write, open_text: Open, sampling: str
) -> None:
    data = open_text(write("a.txt", "abc"), window=10, sampling=sampling, train={"batch": 2})
    batch = data.microbatch(0, 0)
    rows = 2 if sampling == "random" else 1
    assert batch["tokens"].tolist() == [[*b"abc", *[256] * 7]] * rows
    assert batch["labels"].tolist() == [[*b"bc", 256, *[-100] * 7]] * rows
    found = [(each.samples, each.tokens, each.weights) for each in data.window(0)]
    assert found == [(rows, 3 * rows, {"loss": 3.0 * rows})]
    assert data.steps(tokens=13) == 5 - 2 * (rows - 1)


@pytest.mark.parametrize("pack", ["joined", "isolated", "rows"])
@pytest.mark.parametrize("micro", [1, 3, 100])
def test_evaluation_covers_a_split_once_in_order(
    write: Write, open_text: Open, pack: str, micro: int
) -> None:
    lines = [ALPHABET[number : number + 7] for number in range(0, 84, 7)]
    path = write("a.txt", "\n".join(lines))
    data = open_text(
        write("b.txt", "x" * 50),
        validation_paths=(path,),
        format=Auto(documents="line"),
        pack=pack,
        window=5,
        train={"batch": 100, "micro": micro},
    )
    batches = list(data.evaluation("validation"))
    labels = [label for batch in batches for label in batch["labels"].flatten().tolist() if label >= 0]
    stream = [[*line.encode(), 256] for line in lines]
    expected = [token for document in stream for token in document[1:]]
    if pack == "joined":
        expected = [token for document in stream for token in document][1:]
    assert labels == expected
    assert [len(batch["tokens"]) for batch in batches[:-1]] == [micro] * (len(batches) - 1)
    # The end stands for no text.
    assert sum(int(batch["bytes"].sum()) for batch in batches) == sum(token != 256 for token in expected)
    info = data.info.splits["validation"]
    assert (info.documents, info.tokens) == (12, 96)
    assert sum(len(batch["tokens"]) for batch in batches) == info.samples


def test_case_d4_the_loss_of_packed_documents_is_that_of_each_alone(write: Write, open_text: Open) -> None:
    """With a model that attends within documents as it is told to."""
    torch.manual_seed(0)
    embedding, places = torch.randn(257, 8), torch.randn(16, 8)

    def attend(batch: Any) -> torch.Tensor:
        x = embedding[batch["tokens"]] + places[batch["positions"]]
        same = batch["documents"][:, :, None] == batch["documents"][:, None, :]
        scores = (x @ x.transpose(1, 2)).masked_fill(~same.tril(), -torch.inf)
        return scores.softmax(-1) @ x @ embedding.t()

    def loss_of(data: TextData) -> tuple[float, float, torch.Tensor]:
        batch = data.microbatch(0, 0)
        from nlpkernel.hookspecs.model import Outputs

        logits = attend(batch)
        (term,) = data.task.loss(Outputs(logits=logits), batch)
        return term.sum.item(), data.window(0)[0].weights["loss"], logits

    options: dict[str, Any] = {
        "format": Auto(documents="line"),
        "pack": "isolated",
        "window": 16,
        "train": {"batch": 1},
    }
    one = loss_of(open_text(write("1.txt", "fgh"), **options))
    two = loss_of(open_text(write("2.txt", "ij"), **options))
    both = loss_of(open_text(write("3.txt", "fgh\nij"), **options))
    other = loss_of(open_text(write("4.txt", "fgh\nkl"), **options))
    assert both[0] == pytest.approx(one[0] + two[0], rel=1e-5)
    assert both[1] == one[1] + two[1]
    # Changing one document leaves the other's logits as they are.
    assert torch.equal(both[2][0, :4], other[2][0, :4])
    assert not torch.allclose(both[2][0, 4:6], other[2][0, 4:6])


@pytest.mark.parametrize("long", ["truncate", "split", "skip"])
def test_case_d6_a_document_longer_than_the_window(
    write: Write, open_text: Open, make_run: Any, long: str
) -> None:
    run = make_run()
    path = write("a.txt", "x" * 10_000)
    if long == "skip":
        with pytest.raises(
            DataError, match=r'TXT002 no examples in .*; 1 are longer than window = 512, and long = "sk'
        ):
            open_text(path, format=Auto(documents="line"), pack="rows", window=512, long=long, run=run)
    else:
        data = open_text(path, format=Auto(documents="line"), pack="rows", window=512, long=long, run=run)
        assert data.info.splits["train"].samples == {"truncate": 1, "split": 20}[long]
    counted = {"truncate": {"truncated"}, "skip": {"skipped"}, "split": set()}[long]
    assert {what for _, what in run.counts} == {
        f"documents longer than the window, {what} (train)" for what in counted
    }


def test_case_l2_what_drop_leaves_out_is_counted_once_an_epoch(
    write: Write, open_text: Open, make_run: Any
) -> None:
    path = write("a.txt", ALPHABET)
    run = make_run(batch=4, partial="drop")
    data = open_text(path, window=10, run=run)
    for step in (0, 1, 1, 2, 3, 3, 4):
        data.window(step)
    assert run.counts == {("data text", "samples dropped at the end of an epoch"): 4}
    with pytest.raises(DataError, match=r'no step can ever happen: there are 10 samples.*partial = "drop"'):
        open_text(path, window=10, train={"batch": 11, "partial": "drop"})


@pytest.mark.parametrize("pack", ["joined", "isolated", "rows"])
@pytest.mark.parametrize("partial", ["step", "carry", "drop"])
@pytest.mark.parametrize("sampling", ["shuffle", "random"])
def test_so_many_steps_hold_so_many_tokens(
    write: Write, open_text: Open, pack: str, partial: str, sampling: str
) -> None:
    if pack == "rows" and sampling == "random":
        return
    text = "\n".join(ALPHABET[: 3 + number % 17] for number in range(40))
    data = open_text(
        write("a.txt", text),
        format=Auto(documents="line"),
        pack=pack,
        sampling=sampling,
        window=7,
        train={"batch": 5, "partial": partial},
    )
    for wanted in (1, 34, 35, 36, 400, 412, 413, 1000, 5000):
        steps = data.steps(tokens=wanted)
        held = sum(each.tokens for step in range(steps) for each in data.window(step))
        before = held - sum(each.tokens for each in data.window(steps - 1))
        assert held >= wanted
        # At most one window more than needed, where a short row makes the count uneven.
        assert before - 35 < wanted


def test_steps_need_epochs_or_tokens(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", ALPHABET))
    for arguments in ({}, {"epochs": 1.0, "tokens": 5}):
        with pytest.raises(ValueError, match="epochs or tokens"):
            data.steps(**arguments)  # type: ignore[arg-type]


def test_rows_have_names(write: Write, open_text: Open) -> None:
    data = open_text(
        write("a.txt", "ab\n\ncdefghij\n"),
        format=Auto(documents="line"),
        window=3,
        sampling=Order(),
        train={"batch": 3, "micro": 2},
    )
    names = [name.rpartition("/")[2] for index in (0, 1) for name in data.names(0, index)]
    # ab and its end, cdef..., three tokens a row.
    assert names == ["a.txt:1", "a.txt:3", "a.txt:3+3"]
    assert [name.rpartition("/")[2] for name in data.names(1, 0)] == ["a.txt:3+6"]
    data.window(0)
    assert [name.rpartition("/")[2] for name in data.names(0, 0)] == names[:2]


def test_samples_are_text(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", "naïve text\n"), window=5)
    assert data.samples("train", 2) == ["naïv", "e tex"]
    assert len(data.samples("train", 100)) == data.info.splits["train"].samples


def test_the_codec_comes_back_from_the_artifacts_alone(write: Write, open_text: Open, make_run: Any) -> None:
    path = write("a.txt", "the cat sat on the mat\n" * 30)
    for tokenizer in (Bytes(), Characters(end=True), Bpe(vocabulary=280)):
        data = open_text(path, tokenizer=tokenizer)
        kept = dict(data.artifacts())
        codec = Text(paths=(path,), **{**COMPONENTS, "tokenizer": tokenizer}).open_codec(make_run(), kept)
        assert codec.info == data.info
        assert codec.end == data.codec.end is not None
        assert codec.decode([*codec.encode("the mat"), codec.end]) == "the mat"
        assert codec.task.name == "lm"
        for broken in (
            {},
            {**kept, "data.json": b"{}"},
            {**kept, "data.json": b"\xff"},
            {**kept, "tokenizer": b""},
        ):
            with pytest.raises(DataError, match="TXT012"):
                Text(paths=(path,), **{**COMPONENTS, "tokenizer": tokenizer}).open_codec(make_run(), broken)
        facts = json.loads(kept["data.json"])
        facts["vocabulary"] += 1
        with pytest.raises(DataError, match="TXT012 the tokenizer has"):
            Text(paths=(path,), **{**COMPONENTS, "tokenizer": tokenizer}).open_codec(
                make_run(), {**kept, "data.json": json.dumps(facts).encode()}
            )


class Asking:
    """A group that asks something of the data."""

    def __init__(self, requires: Requirements) -> None:
        self.requires = requires


@pytest.mark.parametrize("pack", ["joined", "rows"])
def test_what_a_layout_asks_for_is_padding_that_weighs_nothing(
    write: Write, open_text: Open, make_run: Any, pack: str
) -> None:
    path = write("a.txt", "\n".join(ALPHABET[: 3 + number] for number in range(7)))
    options: dict[str, Any] = {"format": Auto(documents="line"), "pack": pack, "window": 12}
    plain = open_text(path, train={"batch": 5, "micro": 2}, **options)
    run: Run = make_run(batch=5, micro=2)
    run.group = Asking(Requirements(fixed_shapes=True, multiple=2))  # type: ignore[assignment]
    padded = open_text(path, run=run, **options)
    for step in range(4):
        one, other = plain.window(step), padded.window(step)
        assert len(other) % 2 == 0
        for name in ("samples", "tokens"):
            assert sum(getattr(each, name) for each in one) == sum(getattr(each, name) for each in other)
        assert sum(each.weights["loss"] for each in one) == sum(each.weights["loss"] for each in other)
        for index in range(len(other)):
            assert padded.microbatch(step, index)["tokens"].shape == (2, 12)
            assert len(padded.names(step, index)) == other[index].samples
    assert {batch["tokens"].shape for batch in padded.evaluation("train")} == {(2, 12)}
    labels = [
        [
            label
            for batch in data.evaluation("train")
            for label in batch["labels"].flatten().tolist()
            if label >= 0
        ]
        for data in (plain, padded)
    ]
    assert labels[0] == labels[1]


def test_bits_per_byte_come_with_tokenizers_that_know_their_bytes(write: Write, open_text: Open) -> None:
    path = write("a.txt", "naïve \u65e5\u672c " * 20)
    for tokenizer in (Bytes(), Characters(), Bpe(vocabulary=280)):
        data = open_text(path, tokenizer=tokenizer, window=50)
        found = sum(int(batch["bytes"].sum()) for batch in data.evaluation("train"))
        # All but the first token, which is never predicted.
        first = data.codec.encode(path.read_text(encoding="utf-8"))[:1]
        assert found == len(path.read_bytes()) - len(data.codec.decode(first).encode())
    data = open_text(path, tokenizer=Characters(unknown="replace"))
    assert "bytes" not in next(iter(data.evaluation("train")))


def test_opened_data_lets_go_of_its_files(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", ALPHABET))
    data.window(0)
    data.close()
    assert data.state() == {}
    with pytest.raises(AttributeError):
        data.window(0)


def test_estimates_are_what_the_data_turns_out_to_be(write: Write, open_text: Open) -> None:
    from nlpkernel.hookspecs.everywhere import Facts

    path = write("a.txt", "the cat sat on the mat and the dog\n" * 30)
    for tokenizer in (Bytes(), Bpe(vocabulary=270)):
        text = Text(paths=(path,), window=33, **{**COMPONENTS, "tokenizer": tokenizer})
        facts = tokenizer.estimate(text.estimate(Facts()))
        data = open_text(path, window=33, tokenizer=tokenizer)
        assert (facts.vocabulary, facts.window) == (data.info.vocabulary, data.info.window)
        assert attrs.evolve(facts, vocabulary=None, window=None) == Facts()
