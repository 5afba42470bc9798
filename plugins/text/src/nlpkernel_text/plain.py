"""Plain text as documents: whole files, lines, or what stands between blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nlpkernel_text import blocks
from nlpkernel_text.blocks import lines_of, whole_lines
from nlpkernel_text.faults import Faults
from nlpkernel_text.files import File

#: Characters of a piece: longer texts are tokenized in pieces of about this size, in parallel and in bounded
#: memory.
PIECE = 1 << 16
#: Longest piece; a text with no good place to cut is cut here.
LONGEST = 1 << 22

#: A line's end between two visible characters: byte-level BPE makes the same tokens whether or not it is cut
#: here.
_SEAM = re.compile(r"(?<=\S)\n(?=\S)")


class Chunk(NamedTuple):
    """Texts of one file, and the line on which each begins. Each is a document, but for `opens` and `closes`:
    the first text may continue the document of the chunk before, the last may be continued by the next
    chunk."""

    texts: list[str]
    lines: Sequence[int]
    opens: bool = True
    closes: bool = True


def read_whole(file: File, faults: Faults) -> Iterator[Chunk]:
    """A file as one document, in pieces."""
    held, opens, line = "", True, 1
    for text in blocks.pieces(file, faults):
        ready = cut(held + text if held else text)
        # The last piece may be continued by what is read next.
        held = ready.pop()
        for piece in ready:
            yield Chunk([piece], (line,), opens, False)
            opens = False
            line += piece.count("\n")
    if held and not (opens and held.isspace()):
        yield Chunk([held], (line,), opens, True)
    elif opens:
        faults.count("empty files")


def read_lines(file: File, faults: Faults) -> Iterator[Chunk]:
    """Each line as a document; blank lines are left out and counted."""
    for first, text in whole_lines(file, faults):
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
            yield Chunk(texts, lines)


def read_paragraphs(file: File, faults: Faults) -> Iterator[Chunk]:
    """What stands between blank lines as documents, its lines joined by LF. One with a line that cannot be
    read is left out as a whole."""
    held: list[str] = []
    start, good = 1, True
    for first, text in whole_lines(file, faults):
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
            yield Chunk(texts, begins)
    if held and good:
        yield Chunk(["\n".join(held)], (start,))


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
