"""Plain text as documents: whole files, lines, or what stands between blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.reader import Faults, Reader, Records, Source
from nlpkernel_text.reading import blocks
from nlpkernel_text.reading.blocks import lines_of, whole_lines

#: The one column of plain text.
COLUMN = "text"

#: Characters of a piece: longer texts are tokenized in pieces of about this size, in parallel and in bounded memory.
PIECE = 1 << 16
#: Longest piece; a text with no good place to cut is cut here.
LONGEST = 1 << 22

#: A line's end between two visible characters: byte-level BPE makes the same tokens whether or not it is cut here.
_SEAM = re.compile(r"(?<=\S)\n(?=\S)")


class _Plain:
    """What the readers of plain text share: one column, and lines as places."""

    unit: Literal["line", "record"] = "line"
    text = True

    def _refuse(self, source: Source, columns: Sequence[str]) -> None:
        """Raise DataError for a column that plain text does not have."""
        for name in columns:
            if name != COLUMN:
                raise fail(
                    DataError,
                    "TXT006",
                    f"there is no column {name!r}: the reader `text` gives the one column {COLUMN!r}",
                    place=Place(source.shown),
                    hint='write the `format` of the file, such as "jsonl" or "csv", where it has columns',
                )


class Whole(_Plain):
    """A file as one document, in pieces. Where it is not UTF-8 and the plan says to skip, it counts the file and
    raises Skipped, after it may have given some of it."""

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        self._refuse(source, columns)
        held, opens, line = "", True, 1
        for text in blocks.pieces(source, faults):
            ready = cut(held + text if held else text)
            # The last piece may be continued by what is read next.
            held = ready.pop()
            for piece in ready:
                yield Records({COLUMN: [piece]}, (line,), opens, False)
                opens = False
                line += piece.count("\n")
        if held and not (opens and held.isspace()):
            yield Records({COLUMN: [held]}, (line,), opens, True)
        elif opens:
            faults.count("empty files")


class Lines(_Plain):
    """Each line as a document; blank lines are left out and counted."""

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        self._refuse(source, columns)
        for first, text in whole_lines(source, faults):
            if text is None:
                continue
            texts = lines_of(text)
            lines: Sequence[int] = range(first, first + len(texts))
            kept = [number for number, line in enumerate(texts) if line and not line.isspace()]
            if len(kept) < len(texts):
                faults.count("blank lines", len(texts) - len(kept))
                lines = [first + number for number in kept]
                texts = [texts[number] for number in kept]
            if texts:
                yield Records({COLUMN: texts}, lines)


class Paragraphs(_Plain):
    """What stands between blank lines as documents, its lines joined by LF. One with a line that cannot be read is
    left out as a whole."""

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        self._refuse(source, columns)
        held: list[str] = []
        start, good = 1, True
        for first, text in whole_lines(source, faults):
            if text is None:
                good = False
                continue
            texts: list[str] = []
            begins: list[int] = []
            for number, line in enumerate(lines_of(text), first):
                if line and not line.isspace():
                    if not held:
                        start = number
                    held.append(line)
                    continue
                if held and good:
                    texts.append("\n".join(held))
                    begins.append(start)
                held, good = [], True
            if texts:
                yield Records({COLUMN: texts}, begins)
        if held and good:
            yield Records({COLUMN: ["\n".join(held)]}, (start,))


def plain(documents: Literal["file", "line", "blank"]) -> Reader:
    """The reader of plain text whose documents are files, lines, or what stands between blank lines."""
    if documents == "file":
        return Whole()
    return Lines() if documents == "line" else Paragraphs()


def cut(text: str) -> list[str]:
    """A text in pieces: after a line's end between two visible characters, where it is longer than a piece."""
    if len(text) <= 2 * PIECE:
        return [text]
    found: list[str] = []
    at = 0
    while len(text) - at > 2 * PIECE:
        seam = _SEAM.search(text, at + PIECE)
        end = seam.end() if seam else len(text)
        if end - at > LONGEST:
            end = at + LONGEST
        found.append(text[at:end])
        at = end
    if at < len(text):
        found.append(text[at:])
    return found
