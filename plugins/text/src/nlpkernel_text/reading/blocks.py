"""Files as decoded text with its place, in bounded memory.

A line ends at LF; a CR before it belongs to the end. No other character ends a line.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from nlpkernel.errors import Place
from nlpkernel.hookspecs.reader import Faults, Source
from nlpkernel_text.reading.faults import Skipped, snippet

#: Bytes read at once.
BLOCK = 1 << 20
#: Longest line, in bytes: a file that has no lines would be held as a whole otherwise.
LONGEST = 1 << 28


class Block(NamedTuple):
    """Text that begins with line `line` (from 1). `text` is None for one line that is skipped: it is not UTF-8,
    or too long."""

    line: int
    text: str | None


def whole_lines(source: Source, faults: Faults) -> Iterator[Block]:
    """A file in blocks of whole lines, without its byte-order mark; the last line may lack its end.

    A block is about a mebibyte, or as long as a longer line. A line that is not UTF-8, or longer than
    LONGEST, stops, or is a block of its own without text.
    """
    line = 1
    for offset, data in _byte_blocks(source):
        if data is None:
            what = f"the line has more than {LONGEST:,} bytes"
            hint = 'break it up, or write on_error = "skip"'
            faults.broken("lines that are too long", "TXT004", what, Place(source.shown, line, 1), hint)
            yield Block(line, None)
            line += 1
            continue
        start = len(codecs.BOM_UTF8) if offset == 0 and data.startswith(codecs.BOM_UTF8) else 0
        try:
            yield Block(line, data[start:].decode("utf-8"))
            line += data.count(b"\n")
        except UnicodeDecodeError:
            at = offset + start
            for raw in _split_lines(data[start:]):
                try:
                    text: str | None = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    _not_utf8(source, faults, raw, error.start, line, 0, at, "lines that are not UTF-8")
                    text = None
                yield Block(line, text)
                line += 1
                at += len(raw)


def pieces(source: Source, faults: Faults) -> Iterator[str]:
    """A file as text in pieces of about a mebibyte, without its byte-order mark; lines need not be whole.

    Where it is not UTF-8 this stops with an error; where the plan says to skip, it counts the file and raises
    Skipped, after it may have given some of it.
    """
    line, column, offset = 1, 0, 0
    pending = b""
    with source.open() as stream:
        while True:
            read = stream.read(BLOCK)
            data = pending + read
            if offset == 0 and data.startswith(codecs.BOM_UTF8):
                data = data[len(codecs.BOM_UTF8) :]
                offset = len(codecs.BOM_UTF8)
            cut = _cut(data) if read else len(data)
            pending, data = data[cut:], data[:cut]
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as error:
                _not_utf8(source, faults, data, error.start, line, column, offset, "files that are not UTF-8")
                raise Skipped from error
            if text:
                yield text
            if not read:
                return
            offset += len(data)
            newline = text.rfind("\n")
            line += text.count("\n")
            column = len(text) - newline - 1 + (column if newline < 0 else 0)


def lines_of(text: str) -> list[str]:
    """The lines of a block, without their ends."""
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _byte_blocks(source: Source) -> Iterator[tuple[int, bytes | None]]:
    """Whole lines, and the number of bytes before them; None for a line that is too long, of which only so much is read
    before it is given."""
    pending: list[bytes] = []
    # Where `pending` begins and how long it is; whether it is the rest of a line that is too long.
    offset = size = 0
    over = False
    with source.open() as stream:
        while read := stream.read(BLOCK):
            if over:
                if not (end := read.find(b"\n") + 1):
                    offset += len(read)
                    continue
                over = False
                offset += end
                read = read[end:]
            if cut := read.rfind(b"\n") + 1:
                yield offset, b"".join((*pending, read[:cut]))
                offset += size + cut
                pending, size, read = [], 0, read[cut:]
            pending.append(read)
            size += len(read)
            if size > LONGEST:
                yield offset, None
                offset += size
                pending, size, over = [], 0, True
    if rest := b"".join(pending):
        yield offset, rest


def _split_lines(data: bytes) -> Iterator[bytes]:
    """Lines with their ends; a lone CR, which bytes.splitlines would take for one, ends none."""
    start = 0
    while (end := data.find(b"\n", start) + 1) > 0:
        yield data[start:end]
        start = end
    if start < len(data):
        yield data[start:]


def _cut(data: bytes) -> int:
    """Where data may be cut: after its last line, or else between two characters."""
    if cut := data.rfind(b"\n") + 1:
        return cut
    at = len(data) - 1
    while at > len(data) - 4 and at > 0 and data[at] & 0xC0 == 0x80:
        at -= 1
    return at if at >= 0 and data[at] >= 0xC0 else len(data)


def _not_utf8(
    source: Source, faults: Faults, data: bytes, at: int, line: int, column: int, offset: int, what: str
) -> None:
    """Tell of bytes that are no text. `line`, `column` and `offset` are those of the start of `data`."""
    before = data[:at].decode("utf-8")
    newline = before.rfind("\n")
    line += before.count("\n")
    column = len(before) - newline - 1 + (column if newline < 0 else 0) + 1
    after = data[at : at + 4].hex(" ")
    short = "" if at + 4 < len(data) else " and then the end"
    faults.broken(
        what,
        "TXT003",
        f"not UTF-8 at byte {offset + at}: the bytes {after}{short} after {snippet(before, len(before))}",
        Place(source.shown, line, column),
        'convert the file, or write on_error = "skip"',
    )
