"""Which tokens are to be restored, and what stands in their place."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nlpkernel.sampling import mix
from nlpkernel_tasks.pieces import Pieces

Ids = np.ndarray[Any, np.dtype[Any]]

#: Places for words that go over the share, beside those that it needs.
_ROOM = 8
#: What is drawn for each token: its word's turn, what becomes of it, and which other token it is.
_TURN, _FATE, _OTHER = 1, 2, 3
_LAST = 4


class Chosen(NamedTuple):
    """at: positions that are to be restored [rows, most], in order; `real` says which of them are. tokens: the rows
    with what stands in their place [rows, width]."""

    at: Ids
    real: Ids
    tokens: Ids


class Masking:
    """Chooses by a key of each row, and by nothing else.

    Of n ordinary tokens `share` * n are chosen: as many whole ones as fit, and one more with the probability that is
    left, so that the share is met on average in rows of any length. With words, the same goes for words.
    """

    def __init__(self, pieces: Pieces, share: float, masked: float, replaced: float) -> None:
        self._pieces, self._share = pieces, share
        self._masked, self._changed = masked, masked + replaced
        self._others = np.flatnonzero(pieces.ordinary)

    def most(self, width: int) -> int:
        """Most tokens that are chosen of a row of this width."""
        room = 0 if self._pieces.begins is None else _ROOM
        return min(width, math.ceil(self._share * width) + room)

    def count(self, tokens: Ids, lengths: Ids, keys: Ids) -> int:
        """How many tokens of these rows are chosen."""
        return int(self._choose(tokens, lengths, keys).sum())

    def apply(self, tokens: Ids, lengths: Ids, keys: Ids) -> Chosen:
        """Choose among the tokens of some rows [rows, width], of which each has a length and a key."""
        chosen = self._choose(tokens, lengths, keys)
        most = self.most(tokens.shape[1])
        # Chosen positions first, in their order.
        at = np.argsort(~chosen, axis=1, kind="stable")[:, :most]
        real = np.take_along_axis(chosen, at, axis=1)
        return Chosen(np.where(real, at, 0), real, self._replaced(tokens, chosen, keys))

    def _choose(self, tokens: Ids, lengths: Ids, keys: Ids) -> Ids:
        """For each token whether it is chosen, [rows, width]."""
        width = tokens.shape[1]
        places = np.arange(width)
        able = self._pieces.ordinary[tokens] & (places < lengths[:, None])
        begins = np.ones(tokens.shape, dtype=bool)
        if self._pieces.begins is not None:
            # What stands behind a mark, or at the beginning of a row, begins a word.
            begins[:, 1:] = self._pieces.begins[tokens[:, 1:]] | ~able[:, :-1]
        first = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
        turn = np.take_along_axis(_drawn(keys, width, _TURN), first, axis=1)
        turn[~able] = np.iinfo(np.uint64).max
        # In the order of their turns the pieces of a word stand together: no two places draw the same.
        order = np.argsort(turn, axis=1, kind="stable")
        sorted_first = np.take_along_axis(np.where(able, first, -1), order, axis=1)
        new = np.ones(tokens.shape, dtype=bool)
        new[:, 1:] = sorted_first[:, 1:] != sorted_first[:, :-1]
        before = np.maximum.accumulate(np.where(new, places, 0), axis=1)
        last = np.ones(tokens.shape, dtype=bool)
        last[:, :-1] = new[:, 1:]
        after = np.minimum.accumulate(np.where(last, places + 1, width)[:, ::-1], axis=1)[:, ::-1]
        wanted = self._share * able.sum(axis=1, keepdims=True)
        left = np.clip((wanted - before) / np.maximum(after - before, 1), 0.0, 1.0)
        lucky = _unit(mix(keys + np.uint64(_LAST)))[:, None] < left
        taken = lucky & (sorted_first >= 0) & (after <= self.most(width))
        chosen = np.zeros(tokens.shape, dtype=bool)
        np.put_along_axis(chosen, order, taken, axis=1)
        return chosen

    def _replaced(self, tokens: Ids, chosen: Ids, keys: Ids) -> Ids:
        width = tokens.shape[1]
        fate = _unit(_drawn(keys, width, _FATE))
        other = self._others[
            (_drawn(keys, width, _OTHER) % np.uint64(max(1, len(self._others)))).astype(np.int64)
        ]
        found = tokens.astype(np.int64)
        found[chosen & (fate < self._masked)] = self._pieces.mask
        changed = chosen & (fate >= self._masked) & (fate < self._changed)
        found[changed] = other[changed]
        return found


def _drawn(keys: Ids, width: int, purpose: int) -> Ids:
    """A number of 64 bits for each token of each row, none twice in a row."""
    start = mix(keys + np.uint64(purpose))[:, None]
    drawn: Ids = mix(start + np.arange(width, dtype=np.uint64))
    return drawn


def _unit(drawn: Ids) -> Ids:
    """The same as numbers from 0 up to 1."""
    unit: Ids = (drawn >> np.uint64(11)) * 2.0**-53
    return unit
