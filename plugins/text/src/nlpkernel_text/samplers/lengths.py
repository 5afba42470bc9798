"""Samples of about the same length together."""

from __future__ import annotations

from typing import Any

import numpy as np

from nlpkernel.hookspecs.sampler import Sampler, Samples
from nlpkernel.sampling import key, permute
from nlpkernel_text.samplers.orders import windows

Ids = np.ndarray[Any, np.dtype[Any]]

#: Purpose of a key.
_BATCHES = 0xBA7


def grouped(samples: Samples, pool: int) -> Sampler:
    """Each epoch shuffled, and sorted by length within pools of `pool` batches, whose batches come in any order."""
    size = pool * samples.batch

    def one(epoch: int, number: int) -> Ids:
        first = number * size
        last = min(samples.count, first + size)
        rows = permute(np.arange(first, last), samples.count, key(samples.seed, epoch))
        rows = rows[np.argsort(samples.lengths[rows], kind="stable")]
        # The batch that may be shorter than others stays last, so that batches stay whole.
        whole = (last - first) // samples.batch
        batches = (
            permute(np.arange(whole), whole, key(samples.seed, _BATCHES, epoch, number)) if whole else ()
        )
        parts = [rows[batch * samples.batch : (batch + 1) * samples.batch] for batch in batches]
        return np.concatenate([*parts, rows[whole * samples.batch :]])

    def order(epoch: int, places: Ids) -> Ids:
        first, last = int(places[0]) // size, int(places[-1]) // size
        rows = np.concatenate([one(epoch, number) for number in range(first, last + 1)])
        taken: Ids = rows[places - first * size]
        return taken

    return windows(samples, order=order)
