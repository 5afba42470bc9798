"""The documents of a plan: read, and divided into training and validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import attrs
import numpy as np

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.sampling import key, permute
from nlpkernel_text.faults import Faults, Skipped
from nlpkernel_text.files import File, find_files, stdlib_files
from nlpkernel_text.plain import Chunk, read_lines, read_paragraphs, read_whole
from nlpkernel_text.records import read_jsonl, read_table

if TYPE_CHECKING:
    from nlpkernel.context import Task
    from nlpkernel_text.component import Text

Split = Literal["train", "validation"]

#: Which documents are held out does not depend on the run's seed: runs with other seeds stay comparable.
_HOLD_OUT = key(0x7E57)


class Piece(NamedTuple):
    """Texts of one file and split, as in Chunk."""

    split: Split
    file: int
    chunk: Chunk


@attrs.define
class Size:
    """What a first reading found: documents, characters, and the files that are left out."""

    documents: int = 0
    characters: int = 0
    skipped: frozenset[int] = frozenset()


class Corpus:
    """All documents, in the order of the files. `files` are those of both splits; `own` of them, at the end,
    are the plan's own validation files."""

    def __init__(self, text: Text) -> None:
        self.text = text
        files = stdlib_files() if text.source == "stdlib" else find_files(text.paths, text.format)
        own = find_files(text.validation_paths, text.format, "validation_paths")
        both = {file.path for file in files} & {file.path for file in own}
        if both:
            raise fail(
                DataError,
                "TXT009",
                f"{next(iter(sorted(both)))} is named by `paths` and by `validation_paths`",
                hint="what is validated on must not be trained on",
            )
        self.files = (*files, *own)
        self.own = len(own)
        self.size = Size()

    def measure(self, faults: Faults, task: Task) -> None:
        """Read everything once: count, and find what cannot be read. Raises DataError where there is nothing."""
        size, skipped = Size(), []
        for number, file in enumerate(self.files):
            mine = number < len(self.files) - self.own
            documents = characters = told = 0
            try:
                for chunk in self._read(file, faults):
                    documents += len(chunk.texts) - (not chunk.opens)
                    length = sum(map(len, chunk.texts))
                    characters += length
                    told += length
                    task.advance(length)
            except Skipped:
                skipped.append(number)
                documents = characters = 0
            # A character is a byte or more, and a record more than its text.
            task.advance(max(0, file.path.stat().st_size - told))
            if mine:
                size.documents += documents
                size.characters += characters
        size.skipped = frozenset(skipped)
        self.size = size
        if not size.documents:
            raise fail(DataError, "TXT002", f"no examples in {self.described()}", hint=found(faults))
        if self.text.share and self.text.split == "document" and size.documents < 2:
            raise fail(
                DataError,
                "TXT009",
                f"there is one document in {self.described()}, and a validation split by document needs two",
                hint='write split = "tail", or documents = "line" or "blank", or validation = 0',
            )

    def described(self) -> str:
        """The files as a message names them."""
        files = self.files[: len(self.files) - self.own]
        if self.text.source:
            return f"the source {self.text.source}"
        return files[0].shown if len(files) == 1 else f"{len(files)} files, from {files[0].shown} on"

    def pieces(self) -> Iterator[Piece]:
        """All texts with their split, as `measure` found them."""
        faults = Faults(self.text.on_error == "skip")
        divide = self._by_document if self.text.split == "document" else self._tail
        yield from divide(faults)
        for number in range(len(self.files) - self.own, len(self.files)):
            for chunk in self._chunks(number, faults):
                yield Piece("validation", number, chunk)

    def texts(self) -> Iterator[str]:
        """The texts of the training split; long documents in pieces."""
        for piece in self.pieces():
            if piece.split == "train":
                yield from piece.chunk.texts

    # -- divide ----------------------------------------

    def _by_document(self, faults: Faults) -> Iterator[Piece]:
        total, share = self.size.documents, self.text.share
        held = min(total - 1, max(1, round(share * total))) if share else 0
        is_held = _HeldOut(total, held)
        split: Split = "train"
        document = 0
        for number in range(len(self.files) - self.own):
            for chunk in self._chunks(number, faults):
                if not held:
                    yield Piece("train", number, chunk)
                    continue
                begun = len(chunk.texts) - (not chunk.opens)
                if begun == 0:
                    yield Piece(split, number, chunk)
                    continue
                # Only a chunk of one text continues another, so all of these begin a document.
                mine = is_held.slice(document, begun)
                document += begun
                split = "validation" if mine[-1] else "train"
                if mine.all() or not mine.any():
                    yield Piece(split, number, chunk)
                    continue
                for name, picked in (("train", np.flatnonzero(~mine)), ("validation", np.flatnonzero(mine))):
                    texts = [chunk.texts[at] for at in picked.tolist()]
                    lines = [chunk.lines[at] for at in picked.tolist()]
                    yield Piece(name, number, Chunk(texts, lines))  # type: ignore[arg-type]

    def _tail(self, faults: Faults) -> Iterator[Piece]:
        left = int(self.size.characters * (1 - self.text.share))
        for number in range(len(self.files) - self.own):
            for chunk in self._chunks(number, faults):
                size = sum(map(len, chunk.texts))
                if left <= 0 or size <= left:
                    yield Piece("train" if left > 0 else "validation", number, chunk)
                    left -= size
                    continue
                yield from _cut(number, chunk, left)
                left = 0

    # -- read ----------------------------------------

    def _chunks(self, number: int, faults: Faults) -> Iterator[Chunk]:
        if number not in self.size.skipped:
            yield from self._read(self.files[number], faults)

    def _read(self, file: File, faults: Faults) -> Iterator[Chunk]:
        if file.format == "jsonl":
            return read_jsonl(file, self.text.field, faults)
        if file.format in ("csv", "tsv"):
            return read_table(file, self.text.field, faults)
        readers = {"file": read_whole, "line": read_lines, "blank": read_paragraphs}
        return readers[self.text.documents](file, faults)


class _HeldOut:
    """Which of `total` documents are among the `held` ones that are held out."""

    #: Documents that are looked at at once: one by one is slow.
    BLOCK = 4096

    def __init__(self, total: int, held: int) -> None:
        self.total, self.held = total, held
        self._start = 0
        self._block = np.zeros(0, dtype=bool)

    def slice(self, first: int, count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True for each of `count` documents from `first` on that is held out."""
        end = first + count
        if first < self._start or end > self._start + len(self._block):
            last = min(self.total, max(end, first + self.BLOCK))
            self._block = permute(np.arange(first, last), self.total, _HOLD_OUT) < self.held
            self._start = first
        return self._block[first - self._start : end - self._start]


def _cut(number: int, chunk: Chunk, left: int) -> Iterator[Piece]:
    """A chunk in two: `left` characters to train on, the rest to validate on, of which the first begins a document."""
    before = 0
    while len(chunk.texts[before]) <= left:
        left -= len(chunk.texts[before])
        before += 1
    texts, lines = chunk.texts, list(chunk.lines)
    if before:
        yield Piece("train", number, Chunk(texts[:before], lines[:before], chunk.opens))
    if left:
        head = texts[before][:left]
        yield Piece(
            "train", number, Chunk([head], lines[before : before + 1], chunk.opens or before > 0, False)
        )
        lines[before] += head.count("\n")
    rest = [texts[before][left:], *texts[before + 1 :]]
    yield Piece("validation", number, Chunk(rest, lines[before:], True, chunk.closes))


def found(faults: Faults) -> str | None:
    """What was left out, as a hint."""
    counts = ", ".join(f"{number} {what}" for what, number in sorted(faults.counts.items()))
    return f"found: {counts}" if counts else None


def changed(file: File) -> DataError:
    """The error for a file that is written to while it is read."""
    error = fail(DataError, "TXT010", "the file changed while it was read", place=Place(file.shown))
    assert isinstance(error, DataError)
    return error
