"""Texts within limits of length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.outcome import Work

if TYPE_CHECKING:
    from nlpkernel_clean.components.length import Length

_WORD = re.compile(r"\S+")


class Lengths:
    """The stage: short texts go, long ones go or are cut."""

    ordered = False

    def __init__(self, settings: Length) -> None:
        self.settings = settings

    def apply(self, documents: Documents) -> Outcome:
        """Drop or cut."""
        settings, work = self.settings, Work(documents)
        measure = {"characters": len, "words": _words, "lines": _lines}[settings.unit]
        for index, text in enumerate(documents.texts):
            length = measure(text)
            if length < settings.least:
                work.drop(index, f"fewer than {settings.least} {settings.unit}", f"{length} {settings.unit}")
            elif settings.most is not None and length > settings.most:
                if settings.long == "drop":
                    work.drop(
                        index, f"more than {settings.most} {settings.unit}", f"{length} {settings.unit}"
                    )
                else:
                    work.change(index, _cut(text, settings.most, settings.unit))
                    work.counts["texts truncated"] += 1
                    work.notes[index] = f"truncated from {length} {settings.unit}"
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()


def _words(text: str) -> int:
    return len(text.split())


def _lines(text: str) -> int:
    """Lines end with LF alone; one that ends the text begins no further line."""
    return text.count("\n") + (not text.endswith("\n"))


def _cut(text: str, most: int, unit: str) -> str:
    """The text's beginning, of at most `most` units, to the end of a word. A first word that is longer is cut."""
    if unit == "lines":
        return "\n".join(text.split("\n", most)[:most])
    if unit == "words":
        end = 0
        for count, word in enumerate(_WORD.finditer(text), 1):
            end = word.end()
            if count == most:
                break
        return text[:end]
    cut = text[:most]
    if not text[most].isspace() and not cut[-1].isspace():
        last = re.search(r"\s\S*$", cut)
        if last and cut[: last.start()].strip():
            cut = cut[: last.start()]
    return cut.rstrip() or cut
