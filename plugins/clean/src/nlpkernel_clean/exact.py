"""Exact duplicates, by digests of 128 bits (xxh3). Two different texts share one with a probability of 2^-128."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.outcome import Work
from nlpkernel_clean.table import Column, Names, Table

if TYPE_CHECKING:
    from nlpkernel_clean.components.duplicates import Duplicates

_PUNCTUATION = re.compile(r"[^\w\s]|_")
_DIGITS = re.compile(r"\d+")
#: A blank line and what surrounds it.
_BETWEEN = re.compile(r"(\n[^\S\n]*(?:\n[^\S\n]*)+)")


class Seen:
    """Digests that were seen, each with the number of the document that it was seen in."""

    def __init__(self) -> None:
        self._table = Table()
        #: Upper halves of the digests, by number; the table holds the lower ones.
        self._upper = Column(np.uint64)
        self._documents = Column(np.uint32)
        self._names = Names()
        self._count = 0

    @property
    def bytes(self) -> int:
        """Memory of the tables, without names."""
        return self._table.bytes + self._upper.bytes + self._documents.bytes

    def look(self, texts: Sequence[str], owners: Sequence[int]) -> list[tuple[int, int] | None]:
        """For each text what it repeats, if anything: (0, index of an earlier text), (1, number of a document).

        Texts that are new are seen from now on. `owners` are the numbers of their documents, as `name` gave them.
        """
        answers: list[tuple[int, int] | None] = [None] * len(texts)
        here: dict[bytes, int] = {}
        first: list[int] = []
        for index, text in enumerate(texts):
            digest = xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))
            at = here.setdefault(digest, index)
            if at == index:
                first.append(index)
            else:
                answers[index] = (0, at)
        halves = np.frombuffer(b"".join(here), dtype=np.uint64).reshape(-1, 2)
        fresh = np.ones(len(first), dtype=bool)
        for at, number in zip(*(array.tolist() for array in self._table.find(halves[:, 0])), strict=True):
            if self._upper[number, 0] == halves[at, 1]:
                fresh[at] = False
                answers[first[at]] = (1, int(self._documents[number, 0]))
        new = halves[fresh]
        self._table.add(new[:, 0], np.arange(len(self._upper), len(self._upper) + len(new)))
        self._upper.append(new[:, 1:])
        self._documents.append(np.asarray(owners, dtype=np.uint32)[np.asarray(first, dtype=int)[fresh], None])
        return answers

    def name(self, names: Sequence[str]) -> range:
        """Numbers for documents of these names."""
        self._names.append(list(names))
        self._count += len(names)
        return range(self._count - len(names), self._count)

    def called(self, number: int) -> str:
        """The name of a document."""
        return self._names[number]


class Exact:
    """The stage `duplicates`."""

    ordered = True

    def __init__(self, settings: Duplicates) -> None:
        self.settings = settings
        self._same = _reader(frozenset(settings.ignore))
        self.seen = Seen()

    def apply(self, documents: Documents) -> Outcome:
        """Drop what was seen."""
        if self.settings.scope == "documents":
            return self._whole(documents)
        return self._parts(documents)

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()

    def _whole(self, documents: Documents) -> Outcome:
        work = Work(documents)
        owners = self.seen.name(documents.names)
        texts = list(map(self._same, documents.texts))
        for index, answer in enumerate(self.seen.look(texts, owners)):
            if answer is not None:
                known, at = answer
                work.drop(index, "duplicate", f"the same as {self.seen.called(at if known else owners[at])}")
        return work.outcome()

    def _parts(self, documents: Documents) -> Outcome:
        work, scope = Work(documents), self.settings.scope
        owners = self.seen.name(documents.names)
        cut = [_paragraphs(text) if scope == "paragraphs" else _lines(text) for text in documents.texts]
        # What stands between parts is at the odd places.
        places = [
            (index, at)
            for index, parts in enumerate(cut)
            for at in range(0, len(parts), 2)
            if len(parts[at].strip()) >= max(1, self.settings.least)
        ]
        answers = self.seen.look(
            [self._same(cut[index][at]) for index, at in places], [owners[index] for index, _ in places]
        )
        gone: dict[int, dict[int, str]] = {}
        for (index, at), answer in zip(places, answers, strict=True):
            if answer is not None:
                known, number = answer
                earlier = number if known else owners[places[number][0]]
                gone.setdefault(index, {})[at] = self.seen.called(earlier)
        for index, parts in gone.items():
            work.change(index, _without(cut[index], parts))
            work.counts[f"repeated {scope} removed"] += len(parts)
            earlier_names = ", ".join(dict.fromkeys(parts.values()))
            work.notes[index] = f"{len(parts)} {scope} removed that stand in {earlier_names[:200]}"
        return work.outcome()


def _lines(text: str) -> list[str]:
    return re.split("(\n)", text)


def _paragraphs(text: str) -> list[str]:
    return _BETWEEN.split(text)


def _without(parts: list[str], gone: dict[int, str]) -> str:
    """The parts that stay, with what stood before each of them."""
    kept: list[str] = []
    for at in range(0, len(parts), 2):
        if at not in gone:
            if kept:
                kept.append(parts[at - 1])
            kept.append(parts[at])
    text = "".join(kept)
    return "" if text.isspace() else text


def _reader(ignore: frozenset[str]) -> Callable[[str], str]:
    """What of a text is compared."""

    def read(text: str) -> str:
        if "case" in ignore:
            text = text.casefold()
        if "digits" in ignore:
            text = _DIGITS.sub("0", text)
        if "punctuation" in ignore:
            text = _PUNCTUATION.sub("", text)
        if "space" in ignore:
            text = " ".join(text.split())
        return text

    return read
