"""Micro-batches of as many samples as a number of tokens allows."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.sampler import Samples
from nlpkernel.sampling import Part, key, permute

Ids = np.ndarray[Any, np.dtype[Any]]

#: Purpose of a key.
_ORDER = 0x70C


class TokenBudgeted:
    """Each epoch is shuffled, sorted by length within pools, and cut into micro-batches that hold at most `tokens`
    tokens, padding counted; these come in any order, some of them a window. All samples of an epoch come once.

    The number of windows differs a little from epoch to epoch, so that to know an epoch those before it have to be cut,
    which takes a second or so for ten million samples, once. Raise DataError (TXT030) where a sample can be longer than
    the budget, and where all micro-batches have to be of one size.
    """

    anywhere = False
    dropped = 0

    def __init__(self, samples: Samples, tokens: int, pool: int) -> None:
        if tokens < samples.window:
            raise fail(
                DataError,
                "TXT030",
                f"a sample can have {samples.window} tokens, and a micro-batch may have {tokens}",
                hint=f"write tokens = {samples.window} or more for the sampler, or a shorter `window`",
            )
        if samples.fixed:
            raise fail(
                DataError,
                "TXT030",
                "the layout of the workers needs micro-batches of one size, and token-budget makes them of several",
                hint='write sampling = "length-grouped"',
            )
        self._samples, self._tokens, self._pool = samples, tokens, pool
        #: Micro-batches of a window.
        self._count = max(1, samples.batch // samples.micro)
        #: Windows before each epoch, as far as epochs have been cut.
        self._before = [0]
        self._epoch = -1
        self._batches: list[Ids] = []

    def window(self, step: int) -> list[Part]:
        """The micro-batches of window `step`."""
        epoch, within = self._find(step)
        first = within * self._count
        return [Part(rows, epoch) for rows in self._cut(epoch)[first : first + self._count]]

    def steps(self, epochs: float) -> int:
        """The fewest windows that hold so many passes."""
        whole = int(epochs)
        self._reach(whole + 1)
        left = (epochs - whole) * (self._before[whole + 1] - self._before[whole])
        return max(1, self._before[whole] - int(-(left - 1e-9) // 1))

    def seen(self, step: int) -> int:
        """Samples before window `step`."""
        epoch, within = self._find(step)
        return epoch * self._samples.count + sum(map(len, self._cut(epoch)[: within * self._count]))

    def epoch(self, step: int) -> float:
        """Passes before window `step`."""
        epoch, within = self._find(step)
        return epoch + within / (self._before[epoch + 1] - self._before[epoch])

    def _find(self, step: int) -> tuple[int, int]:
        while self._before[-1] <= step:
            self._reach(len(self._before))
        epoch = int(np.searchsorted(self._before, step, side="right")) - 1
        return epoch, step - self._before[epoch]

    def _reach(self, epochs: int) -> None:
        while len(self._before) <= epochs:
            made = len(self._cut(len(self._before) - 1))
            self._before.append(self._before[-1] + -(-made // self._count))

    def _cut(self, epoch: int) -> list[Ids]:
        """The micro-batches of an epoch, in their order."""
        if epoch == self._epoch:
            return self._batches
        samples = self._samples
        rows = permute(np.arange(samples.count), samples.count, key(samples.seed, epoch))
        mean = max(1.0, float(samples.lengths.mean()))
        size = max(1, int(self._pool * self._tokens / mean))
        made: list[Ids] = []
        for first in range(0, samples.count, size):
            pool = rows[first : first + size]
            pool = pool[np.argsort(samples.lengths[pool], kind="stable")]
            ends = list(accumulate(_sizes(samples.lengths[pool].tolist(), self._tokens)))
            made += np.split(pool, ends[:-1])
        order = permute(np.arange(len(made)), len(made), key(samples.seed, _ORDER, epoch))
        self._epoch, self._batches = epoch, [made[number] for number in order.tolist()]
        return self._batches


def _sizes(lengths: list[int], tokens: int) -> list[int]:
    """Sizes of micro-batches of samples that come sorted by length."""
    sizes, count = [], 0
    for length in lengths:
        if count and (count + 1) * length > tokens:
            sizes.append(count)
            count = 0
        count += 1
    sizes.append(count)
    return sizes
