"""The documents of a plan: read, cleaned where it has stages, and divided into training and validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.reader import Records
from nlpkernel.sampling import key, permute
from nlpkernel_text.chunks import Chunk
from nlpkernel_text.fields import PROMPT, TARGET, Taking
from nlpkernel_text.origins import Listed, Origin, origins, own_files
from nlpkernel_text.reading.faults import Faults, Skipped
from nlpkernel_text.reading.records import read
from nlpkernel_text.streams import Split

if TYPE_CHECKING:
    from nlpkernel.context import Run, Task
    from nlpkernel_text.cleaning.kept import Kept
    from nlpkernel_text.component import Text
    from nlpkernel_text.images.stored import Stored

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
    are the plan's own validation files. words: texts are taken as words."""

    def __init__(self, text: Text, run: Run, *, words: bool = False) -> None:
        self.text = text
        self.run = run
        self.origins: Sequence[Origin] = origins(text, run, words)
        own = own_files(text, run, words)
        files = [file for origin in self.origins for file in origin.files]
        trained = {each.file.identity for each in files}
        both = [file.shown for file in own if file.file.identity in trained]
        if both:
            raise fail(
                DataError,
                "TXT009",
                f"{both[0]} is named by `paths` and by `validation_paths`",
                hint="what is validated on must not be trained on",
            )
        self.files: Sequence[Listed] = (*files, *own)
        self.own = len(own)
        self.size = Size()
        #: The documents after the stages, where there are any.
        self._kept: Kept | None = None
        #: The images of the documents, where they have any and these are decoded.
        self.images: Stored | None = None

    def measure(self, faults: Faults, task: Task) -> None:
        """Read everything once: count, and find what cannot be read. Raise DataError where there is nothing."""
        size, skipped = Size(), []
        for number in range(len(self.files)):
            documents = characters = told = 0
            try:
                for chunk in self.read(number, faults):
                    documents += len(chunk.texts) - (not chunk.opens)
                    length = sum(map(len, chunk.texts))
                    characters += length
                    told += length
                    task.advance(length)
            except Skipped:
                skipped.append(number)
                documents = characters = 0
            # A character is a byte or more, and a record more than its text.
            task.advance(max(0, self.files[number].file.size() - told))
            if number < len(self.files) - self.own:
                size.documents += documents
                size.characters += characters
        size.skipped = frozenset(skipped)
        self.size = size
        broken = 0 if self.images is None else self.images.broken
        self._check(found(faults) or (f"found: {broken} broken images" if broken else None))

    def cleaned(self, kept: Kept, hint: str | None) -> None:
        """Take the documents from here, cleaned, instead of from the files. Raise DataError where there is nothing;
        `hint` says why."""
        self._kept = kept
        mine = range(len(self.files) - self.own)
        self.size = Size(sum(map(kept.documents, mine)), sum(map(kept.characters, mine)))
        self._check(hint)

    def described(self) -> str:
        """The files as a message names them."""
        files = self.files[: len(self.files) - self.own]
        if self.text.source:
            return f"the source {self.text.source}"
        return files[0].shown if len(files) == 1 else f"{len(files)} files, from {files[0].shown} on"

    def pieces(self) -> Iterator[Piece]:
        """All texts with their split, as `measure` or `cleaned` found them."""
        divide = self._by_document if self.text.split == "document" else self._tail
        yield from divide()
        for number in range(len(self.files) - self.own, len(self.files)):
            for chunk in self.chunks(number):
                yield Piece("validation", number, chunk)

    def texts(self) -> Iterator[str]:
        """The texts of the training split, the second ones and the prompts too; long documents in pieces."""
        for piece in self.pieces():
            if piece.split == "train":
                yield from piece.chunk.texts
                for name in (TARGET, PROMPT):
                    yield from piece.chunk.columns.get(name, ())

    def chunks(self, number: int) -> Iterator[Chunk]:
        """The documents of one file. What is left out has been told of before."""
        if self._kept is not None:
            yield from self._kept.chunks(number)
        elif number not in self.size.skipped:
            yield from self.read(number, Faults(self.text.on_error == "skip"))

    def raw(self, faults: Faults, advance: Callable[[int], object]) -> Iterator[tuple[int, Chunk]]:
        """All documents as their files have them, each with the number of its file. `advance` is told of bytes."""
        for number, file in enumerate(self.files):
            told = 0
            for chunk in self.raw_file(number, faults):
                length = sum(map(len, chunk.texts))
                told += length
                advance(length)
                yield number, chunk
            advance(max(0, file.file.size() - told))

    def raw_file(self, number: int, faults: Faults) -> Iterator[Chunk]:
        """The documents of one file as it has them; one that cannot be read to its end is left out."""
        whole: list[Chunk] = []
        try:
            for chunk in self.read(number, faults):
                whole.append(chunk)
                if chunk.closes:
                    yield from whole
                    whole = []
        except Skipped:
            return

    # -- divide ----------------------------------------

    def _by_document(self) -> Iterator[Piece]:
        total, share = self.size.documents, self.text.share
        held = min(total - 1, max(1, round(share * total))) if share else 0
        is_held = _HeldOut(total, held)
        split: Split = "train"
        document = 0
        for number in range(len(self.files) - self.own):
            for chunk in self.chunks(number):
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
                yield Piece("train", number, _picked(chunk, np.flatnonzero(~mine).tolist()))
                yield Piece("validation", number, _picked(chunk, np.flatnonzero(mine).tolist()))

    def _tail(self) -> Iterator[Piece]:
        left = int(self.size.characters * (1 - self.text.share))
        for number in range(len(self.files) - self.own):
            for chunk in self.chunks(number):
                size = sum(map(len, chunk.texts))
                if left <= 0 or size <= left:
                    yield Piece("train" if left > 0 else "validation", number, chunk)
                    left -= size
                    continue
                yield from _cut(number, chunk, left)
                left = 0

    # -- read ----------------------------------------

    def read(self, number: int, faults: Faults, taking: Taking | None = None) -> Iterator[Chunk]:
        """The documents of one file as it has them, with their images as `taking` numbers them, or as they are numbered
        already. Raise Skipped where it cannot be read to its end and is left out."""
        listed = self.files[number]
        if taking is None and self.images is not None:
            taking = self.images.taking(number)
        for records in read(listed.reader, listed.file, listed.fields.columns, faults):
            for part in _apart(records):
                chunk = listed.fields.chunk(part, listed.shown, listed.reader.unit, faults, taking)
                if chunk.texts:
                    yield chunk
                elif not (part.opens and part.closes):
                    # An empty piece of a document, which may be its last.
                    yield Chunk([""], part.places, part.opens, part.closes)

    def _check(self, hint: str | None) -> None:
        if not self.size.documents:
            raise fail(DataError, "TXT002", f"no examples in {self.described()}", hint=hint)
        if self.text.share and self.text.split == "document" and self.size.documents < 2:
            raise fail(
                DataError,
                "TXT009",
                f"there is one document in {self.described()}, and a validation split by document needs two",
                hint='write split = "tail", or format = { use = "text", documents = "line" } (or "blank"), or '
                "validation = 0",
            )


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


def _apart(records: Records) -> Iterator[Records]:
    """Pieces of documents by themselves, and whole ones together."""
    count = len(records.places)
    if count == 1 or (records.opens and records.closes):
        yield records
        return
    first, last = int(not records.opens), count - int(not records.closes)

    def some(start: int, stop: int, opens: bool, closes: bool) -> Records:
        columns = {name: values[start:stop] for name, values in records.columns.items()}
        return Records(columns, records.places[start:stop], opens, closes)

    if first:
        yield some(0, 1, False, True)
    if last > first:
        yield some(first, last, True, True)
    if last < count:
        yield some(last, count, True, False)


def _picked(chunk: Chunk, at: Iterable[int]) -> Chunk:
    """Some of the documents of a chunk of whole ones."""
    at = list(at)
    return Chunk(
        [chunk.texts[each] for each in at],
        [chunk.lines[each] for each in at],
        columns={name: [values[each] for each in at] for name, values in chunk.columns.items()},
    )


def _cut(number: int, chunk: Chunk, left: int) -> Iterator[Piece]:
    """A chunk in two: `left` characters to train on, the rest to validate on, of which the first begins a document."""
    before = 0
    while len(chunk.texts[before]) <= left:
        left -= len(chunk.texts[before])
        before += 1
    texts, lines, columns = chunk.texts, list(chunk.lines), chunk.columns

    def part(first: int, last: int) -> dict[str, Sequence[Any]]:
        return {name: values[first:last] for name, values in columns.items()}

    if before:
        yield Piece(
            "train", number, Chunk(texts[:before], lines[:before], chunk.opens, columns=part(0, before))
        )
    if left:
        head = texts[before][:left]
        opens = chunk.opens or before > 0
        cut = Chunk([head], lines[before : before + 1], opens, False, part(before, before + 1))
        yield Piece("train", number, cut)
        lines[before] += head.count("\n")
    rest = [texts[before][left:], *texts[before + 1 :]]
    columns_left = part(before, len(texts))
    yield Piece("validation", number, Chunk(rest, lines[before:], True, chunk.closes, columns_left))


def found(faults: Faults) -> str | None:
    """What was left out, as a hint."""
    counts = ", ".join(f"{number} {what}" for what, number in sorted(faults.counts.items()))
    return f"found: {counts}" if counts else None


def changed(shown: str) -> DataError:
    """The error for a file that is written to while it is read."""
    error = fail(DataError, "TXT010", "the file changed while it was read", place=Place(shown))
    assert isinstance(error, DataError)
    return error
