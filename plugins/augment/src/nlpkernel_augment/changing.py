"""Words replaced, inserted, left out and swapped.

J. Wei and K. Zou, "EDA: Easy Data Augmentation Techniques for Boosting Performance on Text Classification Tasks", 2019.
There a share of each text's words is changed; here each word is picked on its own, with that share as probability.
"""

from __future__ import annotations

from collections.abc import Mapping

from nlpkernel_augment.base import Changing
from nlpkernel_augment.draws import Draws
from nlpkernel_augment.words import FUNCTION_WORDS, as_written

Synonyms = Mapping[str, tuple[str, ...]]


class Replacing(Changing):
    """Picked words that have synonyms become one of them, each as likely."""

    def __init__(self, strength: float, synonyms: Synonyms, keep: frozenset[str] = frozenset()) -> None:
        super().__init__(strength)
        self._synonyms, self._keep = synonyms, keep | FUNCTION_WORDS

    def change(self, parts: list[str], picked: list[int], draws: Draws) -> str:
        """Replace."""
        for word in picked:
            given = parts[2 * word + 1]
            lower = given.lower()
            found = () if lower in self._keep else self._synonyms.get(lower, ())
            if found:
                parts[2 * word + 1] = as_written(given, found[draws.below(len(found), word)])
        return "".join(parts)


class Inserting(Changing):
    """Behind picked words stands another word: one of the text, or a synonym of one."""

    def __init__(self, strength: float, synonyms: Synonyms | None = None) -> None:
        super().__init__(strength)
        self._synonyms = synonyms

    def change(self, parts: list[str], picked: list[int], draws: Draws) -> str:
        """Insert. Where no word of the text has a synonym, nothing is."""
        given = [part for part in parts[1::2] if self._synonyms is None or self._of(part)]
        if given:
            for word in picked:
                new = given[draws.below(len(given), word, 0)]
                found = self._of(new)
                if found:
                    new = found[draws.below(len(found), word, 1)]
                parts[2 * word + 1] += f" {new}"
        return "".join(parts)

    def _of(self, word: str) -> tuple[str, ...]:
        lower = word.lower()
        if self._synonyms is None or lower in FUNCTION_WORDS:
            return ()
        return self._synonyms.get(lower, ())


class Deleting(Changing):
    """Picked words go, with the white space before them; of a text's first words, with that behind them."""

    def change(self, parts: list[str], picked: list[int], draws: Draws) -> str:
        """Delete. Where all words are picked, one of them, each as likely, stays."""
        if len(picked) == len(parts) // 2:
            picked = picked.copy()
            del picked[draws.below(len(picked), 0)]
        for word in picked:
            parts[2 * word + 1] = ""
            before, after = parts[2 * word], parts[2 * word + 2]
            if before and before[-1].isspace():
                parts[2 * word] = before.rstrip()
            elif not before:
                # The white space behind belongs to nothing any more.
                parts[2 * word + 2] = after.lstrip()
        return "".join(parts)


class Swapping(Changing):
    """Each picked word changes places with another, in the order of the text; each other word in reach is as likely."""

    def __init__(self, strength: float, reach: int | None = None) -> None:
        super().__init__(strength)
        self._reach = reach

    def change(self, parts: list[str], picked: list[int], draws: Draws) -> str:
        """Swap. A word alone stays."""
        count = len(parts) // 2
        for word in picked:
            first, last = 0, count - 1
            if self._reach is not None:
                first, last = max(0, word - self._reach), min(last, word + self._reach)
            if first < last:
                other = first + draws.below(last - first, word)
                other += other >= word
                here, there = 2 * word + 1, 2 * other + 1
                parts[here], parts[there] = parts[there], parts[here]
        return "".join(parts)
