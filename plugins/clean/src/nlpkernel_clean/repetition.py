"""How much of a text repeats itself."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence


def same_lines(lines: Sequence[str]) -> tuple[float, float]:
    """Shares of the lines, and of their characters, that are lines which stood before."""
    counts = Counter(lines)
    again = sum(count - 1 for count in counts.values())
    if not again:
        return 0.0, 0.0
    characters = sum(len(line) * (count - 1) for line, count in counts.items())
    return again / len(lines), characters / sum(map(len, lines))


def in_repeats(words: Sequence[str], top: int, repeats: int) -> Iterator[tuple[int, float, float]]:
    """For runs of 2, 3, ... words: (words, share in the most frequent run, share in all runs that occur twice).

    Shares are of the words' characters. The first counts a run as often as it occurs, overlapping or not; among equally
    frequent ones it is the longest. The second counts each character once. It ends when no run occurs twice, after
    the greater of `top` and `repeats`.
    """
    total = sum(map(len, words))
    # A run can occur twice only where the run without its last word does: later rounds look at few places.
    places: Sequence[int] = range(len(words) - 1)
    for size in range(2, max(top, repeats) + 1):
        if size == 2:
            runs: list[tuple[str, ...]] = list(itertools.pairwise(words))
        else:
            places = [place for place in places if place + size <= len(words)]
            runs = [tuple(words[place : place + size]) for place in places]
        counts = Counter(runs)
        most = max(counts.values(), default=0)
        if most < 2:
            return
        share = 0.0
        if size <= top:
            length = max(sum(map(len, run)) for run, count in counts.items() if count == most)
            share = most * length / total
        places = [place for place, run in zip(places, runs, strict=True) if counts[run] > 1]
        yield size, share, _covered(words, places, size) / total if size > 4 else 0.0


def _covered(words: Sequence[str], places: Sequence[int], size: int) -> int:
    """Characters of the words in runs of `size` from `places` on, each once."""
    covered = end = 0
    for place in places:
        for at in range(max(place, end), place + size):
            covered += len(words[at])
        end = max(end, place + size)
    return covered
