"""Rows as arrays: those that have arrays of all rows beside them as they are, others gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nlpkernel.hookspecs.task import Row

Ids = np.ndarray[Any, np.dtype[Any]]


def tokens_of(rows: Sequence[Row]) -> tuple[Ids, Ids]:
    """The tokens of all rows [rows, width], whole rows with the last token too, and how many of each are no padding
    (int64 [rows])."""
    block = getattr(rows, "tokens", None)
    if block is not None:
        lengths = getattr(rows, "lengths", None)
        if lengths is None:
            lengths = np.full(len(block), block.shape[1])
        return block, np.asarray(lengths, dtype=np.int64)
    lengths = np.array([len(row["tokens"]) for row in rows], dtype=np.int64)
    block = np.zeros((len(rows), max(1, int(lengths.max(initial=0)))), dtype=np.int64)
    for number, row in enumerate(rows):
        block[number, : lengths[number]] = row["tokens"]
    return block, lengths


def values_of(rows: Sequence[Row], together: str, each: str, type: Any) -> Ids | None:
    """One number of each row: the rows' array `together`, or what each row has as `each`; None where they have none."""
    if hasattr(rows, "tokens"):
        found = getattr(rows, together, None)
        return None if found is None else np.asarray(found, dtype=type)
    if not all(each in row for row in rows):
        return None
    return np.array([row[each] for row in rows], dtype=type)


def documents_of(rows: Sequence[Row]) -> Ids | None:
    """The document of each token [rows, width], padding one of its own, where documents must not see each other."""
    if getattr(rows, "isolated", False):
        documents: Ids = rows.documents  # type: ignore[attr-defined]
        return documents
    if hasattr(rows, "tokens") or not any("documents" in row for row in rows):
        return None
    _, lengths = tokens_of(rows)
    found = np.full((len(rows), max(1, int(lengths.max(initial=0)))), -1, dtype=np.int64)
    for number, row in enumerate(rows):
        found[number, : lengths[number]] = row.get("documents", 0)
    return found


def positions_of(documents: Ids) -> Ids:
    """The place of each token in its document, [rows, width]."""
    at = np.arange(documents.shape[1])
    begins = np.zeros(documents.shape, dtype=np.int64)
    begins[:, 1:] = np.where(documents[:, 1:] != documents[:, :-1], at[1:], 0)
    places: Ids = at - np.maximum.accumulate(begins, axis=1)
    return places
