"""Kinds of samples in given shares, met to within a few samples at any moment, without holding a list.

Which kind comes at place p of the sequence of all epochs is told by a Kronecker sequence: the fractional parts of
p * phi fill the unit interval evenly (H. Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", SIAM
1992, chapter 3), and a kind has a stretch of the interval as long as its share. How many places before p have fallen
into a stretch is a sum of floors, which Euclid's algorithm gives in a few dozen steps, so that any place can be looked
up without its predecessors. Places are permuted within small blocks, for the sequence alone is nearly periodic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.hookspecs.sampler import Samples
from nlpkernel.sampling import key, permute

if TYPE_CHECKING:
    from nlpkernel.sampling import Order

Ids = np.ndarray[Any, np.dtype[Any]]

#: The unit interval, in whole numbers.
_ONE = 1 << 32
#: The golden ratio's fractional part of it, made odd: the sequence takes each of its values once.
_STEP = 0x9E3779B9
#: Places that are permuted among each other.
_BLOCK = 64
#: Purposes of keys.
_PLACES, _SAMPLES = 0x5A, 0x5B


def mixed(samples: Samples) -> Order:
    """The order of a mixture whose sources have weights."""
    return by_share(
        samples,
        [group.weight for group in samples.groups],
        [np.arange(group.start, group.stop) for group in samples.groups],
    )


def by_share(samples: Samples, weights: Sequence[float], kinds: Sequence[Ids]) -> Order:
    """An order that takes from each of `kinds` (numbers of samples, none empty) the share that its weight says. Of each
    kind all come in turn, in another order each time."""
    edges = _edges(weights)

    def order(epoch: int, places: Ids) -> Ids:
        at = epoch * samples.count + places
        first = int(at[0]) // _BLOCK * _BLOCK
        last = (int(at[-1]) // _BLOCK + 1) * _BLOCK
        where = np.arange(first, last)
        blocks = where // _BLOCK
        keys = np.array(
            [key(samples.seed, _PLACES, block) for block in range(first // _BLOCK, last // _BLOCK)],
            dtype=np.uint64,
        )[blocks - first // _BLOCK]
        moved = blocks * _BLOCK + permute(where % _BLOCK, _BLOCK, keys)
        values = (moved.astype(np.uint64) * np.uint64(_STEP)) % np.uint64(_ONE)
        kind = np.searchsorted(edges, values.astype(np.int64), side="right") - 1
        rows = np.empty(len(where), dtype=np.int64)
        for number, members in enumerate(kinds):
            mine = np.flatnonzero(kind == number)
            if len(mine):
                before = _below(first, edges[number + 1]) - _below(first, edges[number])
                rows[mine] = _turn(samples.seed, number, members, before, len(mine))
        ordered: Ids = rows[at - first]
        return ordered

    return order


def _edges(weights: Sequence[float]) -> list[int]:
    total = sum(weights)
    passed, edges = 0.0, [0]
    for weight in weights:
        passed += weight
        edges.append(round(passed / total * _ONE))
    return edges


def _turn(seed: int, kind: int, members: Ids, before: int, count: int) -> Ids:
    """`count` of the members, after `before` were taken: all in turn, each turn in another order."""
    turns, within = np.divmod(np.arange(before, before + count), len(members))
    keys = {turn: key(seed, _SAMPLES, kind, turn) for turn in np.unique(turns).tolist()}
    spread = np.array([keys[turn] for turn in turns.tolist()], dtype=np.uint64)
    taken: Ids = members[permute(within, len(members), spread)]
    return taken


def _below(count: int, edge: int) -> int:
    """How many of the first `count` places have a value below `edge`."""
    # value < edge for exactly the places at which this floor falls behind that of the next.
    return _floors(count, _ONE, _STEP, _ONE) - _floors(count, _ONE, _STEP, _ONE - edge) if edge else 0


def _floors(count: int, modulus: int, factor: int, offset: int) -> int:
    """The sum of (factor * i + offset) // modulus over i from 0 to count - 1, by Euclid's algorithm."""
    total = 0
    while count:
        total += (factor // modulus) * (count * (count - 1) // 2) + (offset // modulus) * count
        factor, offset = factor % modulus, offset % modulus
        most = factor * count + offset
        if most < modulus:
            break
        count, offset, modulus, factor = most // modulus, most % modulus, factor, modulus
    return total
