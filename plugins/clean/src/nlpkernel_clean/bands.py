"""How signatures are cut into bands, and when an estimate counts.

Signatures agree in one number with the probability of their Jaccard index s, so that a band of r numbers agrees with
s^r and one of b bands with 1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section
3.4). The numbers of the whole signature that agree are binomial. Both may lose a pair; together they lose what the
recall allows.
"""

from __future__ import annotations

from math import ceil, exp, lgamma, log
from typing import NamedTuple

#: Bands that are kept of a document at most: each costs memory, and fewer find as much where they are shorter.
MOST = 16
#: Two different numbers look the same in what is kept of them (8 bits) with this probability.
CHANCE = 1 / 256


class Bands(NamedTuple):
    """`bands` bands of `rows` numbers; a candidate counts where at least `agreeing` of all kept numbers agree."""

    bands: int
    rows: int
    agreeing: int


def found(similarity: float, bands: int, rows: int) -> float:
    """Probability that a pair is a candidate."""
    return 1 - (1 - similarity**rows) ** bands


def estimate(agreeing: float) -> float:
    """The Jaccard index from the share of kept numbers that agree."""
    return (agreeing - CHANCE) / (1 - CHANCE)


def bands_for(permutations: int, threshold: float, recall: float) -> Bands:
    """The longest bands, and so the fewest false candidates, that lose half of what may be lost at the threshold;
    the estimate may lose the rest.

    Raises ValueError where the permutations are too few: 16 suffice for thresholds from 0.3 and recalls to 0.99.
    """
    for rows in range(permutations, 0, -1):
        alike = threshold**rows
        if alike > 1e-9:
            bands = 1 if alike == 1 else ceil(log((1 - recall) / 2) / log(1 - alike))
            if bands <= MOST and bands * rows <= permutations:
                kept = recall / found(threshold, bands, rows)
                return Bands(bands, rows, _agreeing(permutations, threshold, kept))
    raise ValueError(f"{permutations} permutations cannot find {recall} of the pairs at {threshold}")


def _agreeing(permutations: int, similarity: float, kept: float) -> int:
    """The most numbers of which pairs of this similarity have as many, with the probability `kept` at least."""
    alike = similarity + (1 - similarity) * CHANCE
    if alike >= 1:
        return permutations
    reached = 0.0
    for count in range(permutations, 0, -1):
        rest = permutations - count
        ways = lgamma(permutations + 1) - lgamma(count + 1) - lgamma(rest + 1)
        reached += exp(ways + count * log(alike) + rest * log(1 - alike))
        if reached >= kept:
            return count
    return 0
