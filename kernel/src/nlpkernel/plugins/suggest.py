"""Did you mean: the candidate nearest to a misspelt word.

difflib costs 5 ms to import and knows no transposition, which is how most names are misspelt.
"""

from __future__ import annotations

from collections.abc import Iterable

#: So many candidates are listed where none is near.
LISTED = 12


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to `word`, or None where none is near.

    Near is a distance of at most a third of the longer one's length, and at least 1. Case and the kind of
    separator (`-`, `_`, `.`, space) count nothing. Of equally near ones the first in the alphabet wins."""
    plain = _plain(word)
    best: tuple[int, str] | None = None
    for candidate in candidates:
        other = _plain(candidate)
        limit = max(1, max(len(plain), len(other)) // 3)
        apart = distance(plain, other) if abs(len(plain) - len(other)) <= limit else limit + 1
        # A distance of one whole short word is no resemblance: "a" is not near "b".
        if (
            apart <= limit
            and apart < max(len(plain), len(other))
            and (best is None or (apart, candidate) < best)
        ):
            best = (apart, candidate)
    return best[1] if best else None


def hint(word: str, candidates: Iterable[str]) -> str | None:
    """What to say after "there is no WORD": the nearest candidate, or up to 12 of what there is. None:
    nothing."""
    names = sorted(set(candidates))
    near = closest(word, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if not names:
        return None
    rest = len(names) - LISTED
    listed = ", ".join(names[:LISTED])
    return f"there are: {listed}" + (f" and {rest} more" if rest > 0 else "")


def distance(one: str, two: str) -> int:
    """Insertions, deletions, substitutions and swaps of neighbours that make one word the other.

    The restricted form (optimal string alignment): no letter is edited twice.
    """
    before: list[int] = []
    row = list(range(len(two) + 1))
    for i, a in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, b in enumerate(two, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == two[j - 2] and one[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _plain(word: str) -> str:
    return word.casefold().replace("_", "-").replace(".", "-").replace(" ", "-")
