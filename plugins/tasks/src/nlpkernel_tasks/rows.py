"""Rows as arrays: those that have arrays of all rows beside them as they are, others gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel_tasks.codes import OWNER

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


def matrix_of(rows: Sequence[Row], name: str, pad: int) -> Ids | None:
    """What each row has of each of its tokens, int64 [rows, width]; None where they have none."""
    if hasattr(rows, "tokens"):
        found = getattr(rows, name, None)
        return None if found is None else np.asarray(found, dtype=np.int64)
    if not all(name in row for row in rows):
        return None
    block, _ = tokens_of(rows)
    made = np.full(block.shape, pad, dtype=np.int64)
    for number, row in enumerate(rows):
        made[number, : len(row[name])] = row[name]
    return made


def targets_of(rows: Sequence[Row]) -> tuple[Ids, Ids] | None:
    """The second texts of all rows [rows, width], and how many tokens each has, int64 [rows]; None where rows have
    none."""
    if hasattr(rows, "tokens"):
        return getattr(rows, "targets", None)
    if not all("target" in row for row in rows):
        return None
    return tokens_of([{"tokens": row["target"]} for row in rows])


def sets_of(rows: Sequence[Row]) -> tuple[Ids, Ids] | None:
    """The labels of all rows, one row after another, and how many each has, int64 [rows]; None where rows have none."""
    if hasattr(rows, "tokens"):
        return getattr(rows, "sets", None)
    if not all("labels" in row for row in rows):
        return None
    counts = np.array([len(row["labels"]) for row in rows], dtype=np.int64)
    return np.array([each for row in rows for each in row["labels"]], dtype=np.int64), counts


def need_targets(rows: Sequence[Row]) -> tuple[Ids, Ids]:
    """The same. Raise DataError (TSK001) where rows have none."""
    found = targets_of(rows)
    if found is None:
        hint = 'write `fields = { target = ... }` and `pack = "rows"` in [data]'
        raise fail(DataError, "TSK001", "the rows have no second text", owner=OWNER, hint=hint)
    return found


def need_images(rows: Sequence[Row]) -> Ids:
    """The images of all rows, uint8 [rows, 3, side, side]. Raise DataError (TSK001) where rows have none."""
    found = None
    if hasattr(rows, "tokens"):
        found = getattr(rows, "images", None)
    elif all("image" in row for row in rows):
        found = np.stack([row["image"] for row in rows])
    if found is None:
        hint = 'write `fields = { image = ... }`, `images = { size = 32 }` and `pack = "rows"` in [data]'
        raise fail(DataError, "TSK001", "the rows have no image", owner=OWNER, hint=hint)
    return np.asarray(found, dtype=np.uint8)


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
