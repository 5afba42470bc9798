"""What is drawn for a text: numbers that depend on its key alone, computed for many texts at once.

SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014), started anew for each text,
word and purpose, so that what is drawn for a word does not hang on what was drawn for others.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nlpkernel.sampling import key

Keys = np.ndarray[Any, np.dtype[np.uint64]]

_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_WORD = (1 << 64) - 1


class Picked:
    """The words of some texts that are picked, each with the probability `strength`."""

    def __init__(self, keys: Keys, counts: Sequence[int], strength: float) -> None:
        lengths = np.asarray(counts, dtype=np.int64)
        ends = np.cumsum(lengths)
        self._firsts = np.concatenate([ends[:1] * 0, ends[:-1]]) if len(ends) else ends
        at = np.arange(1, int(ends[-1]) + 1 if len(ends) else 1, dtype=np.int64) - np.repeat(
            self._firsts, lengths
        )
        drawn = _mixed(
            np.repeat(_mixed(np.asarray(keys, dtype=np.uint64)), lengths) + at.astype(np.uint64) * _gamma(1)
        )
        # 53 bits, as many as a double holds: 1.0 is never reached, so that a strength of 1 picks all and 0 none.
        self._where = np.flatnonzero((drawn >> np.uint64(11)) * 2.0**-53 < strength)
        self._ends = ends

    def __iter__(self) -> Any:
        """(index of a text, indices of its picked words) for each text that has some."""
        texts = np.searchsorted(self._ends, self._where, side="right")
        words = self._where - self._firsts[texts]
        cuts = np.flatnonzero(np.diff(texts)) + 1
        starts = [0, *cuts.tolist(), len(words)]
        texts_, words_ = texts.tolist(), words.tolist()
        for start, end in itertools.pairwise(starts):
            if start < end:
                yield texts_[start], words_[start:end]


class Draws:
    """Further numbers for one text, each named by whole numbers (a word, a purpose)."""

    def __init__(self, text_key: Any) -> None:
        self._key = int(text_key)

    def below(self, high: int, *name: int) -> int:
        """A number from 0 to `high` - 1; all are equally likely, to `high` / 2^64."""
        return key(self._key, *name) * high >> 64


def _gamma(times: int) -> np.uint64:
    return np.uint64(_GAMMA * times & _WORD)


def _mixed(values: Any) -> Any:
    """SplitMix64's output function."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    return values ^ (values >> np.uint64(31))
