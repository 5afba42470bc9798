"""Rows of tokens, and what becomes of documents in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel_text.lm import LanguageModelling
from nlpkernel_text.packing import Packer, RowPacker
from nlpkernel_text.rows import Rows
from nlpkernel_text.streams import Stream

LM = LanguageModelling()


def stream_of(documents: list[list[int]]) -> Stream:
    sizes = [len(document) for document in documents]
    tokens = np.array([token for document in documents for token in document], dtype=np.uint16)
    starts = np.cumsum([0, *sizes[:-1]]).astype(np.int64)
    where = np.array([[0, number + 1] for number in range(len(documents))], dtype=np.uint32)
    return Stream(tokens, starts, where)


def plain(batch: Any) -> dict[str, list[list[int]]]:
    return {name: tensor.tolist() for name, tensor in batch.items()}


def every(packer: Packer) -> Rows:
    return packer.rows(np.arange(packer.samples))


def slowly(
    documents: list[list[int]], starts: list[int], lengths: list[int], width: int, isolated: bool
) -> Any:
    """What a batch must be, written one token at a time. Padding is 0 here, and not counted."""
    flat = [(number, token) for number, document in enumerate(documents) for token in document]
    batch: dict[str, list[list[int]]] = {"tokens": [], "labels": []}
    if isolated:
        batch |= {"positions": [], "documents": []}
    for start, length in zip(starts, lengths, strict=True):
        row: dict[str, list[int]] = {name: [] for name in batch}
        document, position = 0, -1
        for at in range(start, start + width - 1):
            here = at < start + length
            follows = at + 1 < start + length
            row["tokens"].append(flat[at][1] if here else 0)
            same = follows and (not isolated or flat[at][0] == flat[at + 1][0])
            row["labels"].append(flat[at + 1][1] if same else -100)
            if isolated:
                seam = at > start and here and flat[at][0] != flat[at - 1][0]
                padding = at == start + length
                document, position = (document + 1, 0) if seam or padding else (document, position + 1)
                row["positions"].append(position)
                row["documents"].append(document)
        for name, values in row.items():
            batch[name].append(values)
    return batch


DOCUMENTS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=7), min_size=1, max_size=8)


@given(documents=DOCUMENTS, window=st.integers(1, 9), isolated=st.booleans())
def test_rows_are_what_a_loop_over_tokens_gives(
    documents: list[list[int]], window: int, isolated: bool
) -> None:
    total = sum(map(len, documents))
    packer = Packer(stream_of(documents), window, isolated=isolated)
    assert packer.samples == -(-(total - 1) // window)
    if not packer.samples:
        return
    rows = every(packer)
    starts = [number * window for number in range(packer.samples)]
    lengths = [min(window + 1, total - start) for start in starts]
    expected = slowly(documents, starts, lengths, window + 1, isolated)
    assert plain(LM.batch(rows)) == expected
    counted = sum(label >= 0 for row in expected["labels"] for label in row)
    assert LM.weights(rows) == {"loss": counted}
    assert rows.counted == counted
    assert rows.used == total - 1
    # One mapping a row, as a task of another distribution reads them: as wide as the longest.
    narrow = LM.batch(list(rows))
    width = narrow["tokens"].shape[1]
    assert width == min(window, max(lengths) - 1)
    assert plain(narrow) == {name: [row[:width] for row in value] for name, value in expected.items()}
    assert LM.weights(list(rows)) == LM.weights(rows)


@given(documents=DOCUMENTS, window=st.integers(1, 9))
def test_joined_rows_predict_every_token_but_the_first_once(documents: list[list[int]], window: int) -> None:
    flat = [token for document in documents for token in document]
    packer = Packer(stream_of(documents), window)
    if packer.samples:
        labels = LM.batch(every(packer))["labels"].flatten().tolist()
        assert [label for label in labels if label >= 0] == flat[1:]


@given(
    documents=DOCUMENTS,
    window=st.integers(1, 9),
    long=st.sampled_from(["split", "truncate", "skip"]),
    fixed=st.booleans(),
)
def test_rows_of_their_own_predict_every_token_of_a_document_but_its_first(
    documents: list[list[int]], window: int, long: Any, fixed: bool
) -> None:
    packer = RowPacker(stream_of(documents), window, long, fixed=fixed)
    kept = [document for document in documents if len(document) > 1]
    over = [document for document in kept if len(document) > window + 1]
    assert packer.short == len(documents) - len(kept)
    assert packer.longer == len(over)
    if long == "skip":
        kept = [document for document in kept if document not in over]
    if long == "truncate":
        kept = [document[: window + 1] for document in kept]
    assert packer.tokens == sum(len(document) - 1 for document in kept)
    if not packer.samples:
        assert not kept
        return
    rows = every(packer)
    batch = LM.batch(rows)
    labels = [label for label in batch["labels"].flatten().tolist() if label >= 0]
    assert labels == [token for document in kept for token in document[1:]]
    assert rows.counted == rows.used == packer.tokens
    width = window if fixed else max(min(len(document) - 1, window) for document in kept)
    assert batch["tokens"].shape == (packer.samples, width)
    narrow = plain(LM.batch(list(rows)))["labels"]
    assert narrow == [row[: len(narrow[0])] for row in batch["labels"].tolist()]


@pytest.mark.parametrize(("long", "count"), [("truncate", 1), ("split", 20), ("skip", 0)])
@pytest.mark.parametrize("end", [0, 1])
def test_case_d6_one_line_of_10000_tokens_with_a_limit_of_512(long: Any, count: int, end: int) -> None:
    packer = RowPacker(stream_of([list(range(1, 10_001 + end))]), 512, long)
    assert packer.samples == count


def test_case_d4_documents_do_not_see_each_other() -> None:
    packer = Packer(stream_of([[5, 6, 7], [8, 9]]), 5, isolated=True)
    batch = plain(LM.batch(every(packer)))
    assert batch["tokens"] == [[5, 6, 7, 8, 9]]
    assert batch["labels"] == [[6, 7, -100, 9, -100]]
    assert batch["positions"] == [[0, 1, 2, 0, 1]]
    assert batch["documents"] == [[0, 0, 0, 1, 1]]
    # The same from plain rows, in the middle of more.
    row = {"tokens": [5, 6, 7, 8, 9, 3], "documents": [0, 0, 0, 1, 1, 2]}
    batch = plain(LM.batch([row]))
    assert batch["positions"] == [[0, 1, 2, 0, 1]]
    assert batch["labels"] == [[6, 7, -100, 9, -100]]
    assert LM.weights([row]) == {"loss": 3}


def test_case_d1_padding_is_told_by_length_also_where_its_id_is_the_end_of_text() -> None:
    end = 7
    packer = RowPacker(stream_of([[1, 2, end], [3, end], [4, 5, 6, end]]), 5, "split", pad=end)
    batch = plain(LM.batch(every(packer)))
    assert batch["labels"] == [
        [2, end, -100, -100, -100],
        [end, -100, -100, -100, -100],
        [5, 6, end, -100, -100],
    ]
    assert batch["tokens"] == [[1, 2, end, end, end], [3, end, end, end, end], [4, 5, 6, end, end]]


@given(documents=DOCUMENTS, window=st.integers(1, 9), isolated=st.booleans(), more=st.integers(0, 3))
def test_rows_of_padding_weigh_nothing(
    documents: list[list[int]], window: int, isolated: bool, more: int
) -> None:
    packer = Packer(stream_of(documents), window, isolated=isolated)
    if not packer.samples:
        return
    rows = every(packer)
    padded = packer.padded(rows, len(rows) + more)
    assert (padded.counted, padded.used, padded.real) == (rows.counted, rows.used, rows.real)
    batch, plain_batch = LM.batch(padded), LM.batch(rows)
    assert batch["tokens"].shape == (len(rows) + more, window)
    assert (batch["labels"][len(rows) :] == -100).all()
    for name, tensor in plain_batch.items():
        assert (batch[name][: len(rows)] == tensor).all()


@given(documents=DOCUMENTS, data=st.data())
def test_the_place_of_a_token_is_its_document(documents: list[list[int]], data: st.DataObject) -> None:
    packer = Packer(stream_of(documents), 3)
    flat = [(number, at) for number, document in enumerate(documents) for at in range(len(document))]
    start = data.draw(st.integers(0, len(flat) - 1))
    assert packer.place(start) == (0, flat[start][0] + 1, flat[start][1])
