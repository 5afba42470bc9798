"""Rules that tell prose from other text, by counting.

Source: J. Rae et al., "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", 2021, appendix
A1.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.components.quality import RULES
from nlpkernel_clean.outcome import Work
from nlpkernel_clean.repetition import in_repeats, same_lines

if TYPE_CHECKING:
    from nlpkernel_clean.components.quality import Quality

_BULLET = re.compile(r"[ \t]*[•‣▪◦●○■□–*\-](?=\s)")
_ELLIPSES = ("...", "…")
_LETTER = re.compile(r"[^\W\d_]")


class Score(NamedTuple):
    """What a rule found in a text, and the limits that it compares with."""

    what: str
    found: float
    least: float | None
    most: float | None

    @property
    def broken(self) -> str:
        """The reason to drop the text, or nothing."""
        if self.least is not None and self.found < self.least:
            return f"{self.what} below {self.least:g}"
        if self.most is not None and self.found > self.most:
            return f"{self.what} above {self.most:g}"
        return ""

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.4g}"


class Page:
    """A text with what several rules look at."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = text.split()
        self._lines: list[str] | None = None

    @property
    def lines(self) -> list[str]:
        """The lines that hold anything."""
        if self._lines is None:
            self._lines = [line for line in self.text.split("\n") if line and not line.isspace()]
        return self._lines


class Rules:
    """The stage: documents that break a rule go."""

    ordered = False

    def __init__(self, settings: Quality) -> None:
        self.settings = settings
        self._stop_words = frozenset(settings.stop_words)
        asked: dict[str, Callable[[Page], Iterator[Score]]] = {
            "characters": self._characters,
            "words": self._words,
            "word-length": self._word_length,
            "symbols": self._symbols,
            "bullets": self._bullets,
            "ellipses": self._ellipses,
            "alphabetic": self._alphabetic,
            "stop-words": self._missing_stop_words,
            "lines": self._same_lines,
            "repetition": self._repetition,
        }
        self._asked = [asked[name] for name in RULES if name not in settings.off]

    def apply(self, documents: Documents) -> Outcome:
        """Drop what breaks a rule; the first that is broken is the reason."""
        work = Work(documents)
        for index, text in enumerate(documents.texts):
            page, found = Page(text), []
            for score in self._scores(page):
                if reason := score.broken:
                    work.drop(index, reason, str(score))
                    break
                found.append(str(score))
            else:
                if found:
                    work.notes[index] = "; ".join(found)
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()

    def _scores(self, page: Page) -> Iterator[Score]:
        for ask in self._asked:
            yield from ask(page)

    # -- rules ----------------------------------------

    def _characters(self, page: Page) -> Iterator[Score]:
        settings = self.settings
        if (settings.least_characters, settings.most_characters) != (None, None):
            yield Score("characters", len(page.text), settings.least_characters, settings.most_characters)

    def _words(self, page: Page) -> Iterator[Score]:
        settings = self.settings
        if (settings.least_words, settings.most_words) != (None, None):
            yield Score("words", len(page.words), settings.least_words, settings.most_words)

    def _word_length(self, page: Page) -> Iterator[Score]:
        settings = self.settings
        if page.words and (settings.least_word_length, settings.most_word_length) != (None, None):
            mean = sum(map(len, page.words)) / len(page.words)
            yield Score("mean word length", mean, settings.least_word_length, settings.most_word_length)

    def _symbols(self, page: Page) -> Iterator[Score]:
        most = self.settings.most_symbols
        if most is not None:
            words = max(1, len(page.words))
            yield Score("# for each word", page.text.count("#") / words, None, most)
            found = sum(map(page.text.count, _ELLIPSES)) / words
            yield Score("ellipses for each word", found, None, most)

    def _bullets(self, page: Page) -> Iterator[Score]:
        most = self.settings.most_bullets
        if most is not None and page.lines:
            share = sum(_BULLET.match(line) is not None for line in page.lines) / len(page.lines)
            yield Score("share of lines with a bullet", share, None, most)

    def _ellipses(self, page: Page) -> Iterator[Score]:
        most = self.settings.most_ellipses
        if most is not None and page.lines:
            share = sum(line.rstrip().endswith(_ELLIPSES) for line in page.lines) / len(page.lines)
            yield Score("share of lines that end with an ellipsis", share, None, most)

    def _alphabetic(self, page: Page) -> Iterator[Score]:
        least = self.settings.least_alphabetic
        if least is not None and page.words:
            found = sum(word.isalpha() or _LETTER.search(word) is not None for word in page.words)
            share = found / len(page.words)
            yield Score("share of words with a letter", share, least, None)

    def _missing_stop_words(self, page: Page) -> Iterator[Score]:
        least = self.settings.least_stop_words
        if least is not None:
            found = len(self._stop_words.intersection(page.words))
            if found < least:
                # As they mostly stand comes first; capitals and punctuation only where that was not enough.
                words = {word.strip(".,;:!?\"'()").lower() for word in page.words}
                found = len(self._stop_words & words)
            yield Score("stop words", found, least, None)

    def _same_lines(self, page: Page) -> Iterator[Score]:
        of_lines, of_characters = self.settings.most_same_lines, self.settings.most_in_same_lines
        if (of_lines, of_characters) != (None, None) and len(page.lines) > 1:
            lines, characters = same_lines(page.lines)
            yield Score("share of repeated lines", lines, None, of_lines)
            yield Score("share of characters in repeated lines", characters, None, of_characters)

    def _repetition(self, page: Page) -> Iterator[Score]:
        top, repeats = self.settings.most_in_top, self.settings.most_in_repeats
        if top or repeats:
            for words, most_frequent, repeated in in_repeats(page.words, len(top) + 1, len(repeats) + 4):
                if 2 <= words < len(top) + 2:
                    what = f"share of the most frequent run of {words} words"
                    yield Score(what, most_frequent, None, top[words - 2])
                if 5 <= words < len(repeats) + 5:
                    what = f"share of runs of {words} words that occur twice"
                    yield Score(what, repeated, None, repeats[words - 5])
