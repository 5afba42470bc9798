"""Samplers that go by the class of each sample."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.sampler import Sampler, Samples
from nlpkernel.sampling import key, permute
from nlpkernel_text.samplers.orders import windows

Ids = np.ndarray[Any, np.dtype[Any]]

#: Purposes of keys.
_CLASSES, _MEMBERS, _OFFSET = 0xC1, 0xC2, 0xC3


def members(samples: Samples, name: str) -> list[Ids]:
    """The samples of each class. Raise DataError (TXT030) where samples have no classes, or one has no sample."""
    if samples.labels is None:
        raise fail(
            DataError,
            "TXT030",
            f'sampling = "{name}" goes by the class of each sample, and the data has no labels',
            hint='name the field that holds them: fields = { label = "..." }',
        )
    order = np.argsort(samples.labels, kind="stable")
    sizes = np.bincount(samples.labels, minlength=len(samples.classes))
    found = np.split(order, sizes.cumsum()[:-1])
    for label, mine in zip(samples.classes, found, strict=True):
        if not len(mine):
            raise fail(DataError, "TXT030", f"no training sample is of the class {label!r}")
    return found


def balanced(samples: Samples) -> Sampler:
    """Classes in turn, in another order each turn; of each class its samples in turn, likewise."""
    classes = members(samples, "balanced")
    several = len(classes)

    def order(epoch: int, places: Ids) -> Ids:
        at = epoch * samples.count + places
        turns = at // several
        keys = {turn: key(samples.seed, _CLASSES, turn) for turn in np.unique(turns).tolist()}
        spread = np.array([keys[turn] for turn in turns.tolist()], dtype=np.uint64)
        kind = permute(at % several, several, spread)
        rows = np.empty(len(at), dtype=np.int64)
        for number, mine in enumerate(classes):
            where = np.flatnonzero(kind == number)
            if not len(where):
                continue
            passed, within = np.divmod(turns[where], len(mine))
            cycle_keys = {
                each: key(samples.seed, _MEMBERS, number, each) for each in np.unique(passed).tolist()
            }
            cycles = np.array([cycle_keys[each] for each in passed.tolist()], dtype=np.uint64)
            rows[where] = mine[permute(within, len(mine), cycles)]
        return rows

    return windows(samples, order=order)


def stratified(samples: Samples) -> Sampler:
    """Classes spread evenly over each epoch: sample j of the n of a class, in a random order, stands at (j + u) / n of
    it, u being drawn for the class. Any m samples in a row hold a class of share s more than s (m - classes) - 1
    times. Raise DataError (TXT030) where a micro-batch is too small to hold each class."""
    classes = members(samples, "stratified")
    least = min(len(mine) for mine in classes)
    if samples.micro * least < samples.count:
        name = samples.classes[min(range(len(classes)), key=lambda each: len(classes[each]))]
        raise fail(
            DataError,
            "TXT030",
            f"a micro-batch of {samples.micro} cannot hold {name!r}, which is {least} of {samples.count} samples",
            hint=f'make micro-batches of {-(-samples.count // least)} or more, or write sampling = "balanced"',
        )

    @lru_cache(maxsize=2)
    def whole(epoch: int) -> Ids:
        rows, where = [], []
        for number, mine in enumerate(classes):
            count = len(mine)
            rows.append(mine[permute(np.arange(count), count, key(samples.seed, _MEMBERS, number, epoch))])
            offset = key(samples.seed, _OFFSET, number, epoch) / 2**64
            where.append((np.arange(count) + offset) / count)
        placed: Ids = np.concatenate(rows)[np.argsort(np.concatenate(where), kind="stable")]
        return placed

    return windows(samples, order=lambda epoch, places: whole(epoch)[places])
