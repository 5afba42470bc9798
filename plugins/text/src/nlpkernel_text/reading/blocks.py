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


class Block(NamedTuple):
    """Text that begins with line `line` (from 1). `text` is None for one line that is not UTF-8 and is skipped."""

    line: int
    text: str | None


def whole_lines(source: Source, faults: Faults) -> Iterator[Block]:
    """A file in blocks of whole lines, without its byte-order mark; the last line may lack its end.

    A block is about a mebibyte, or as long as a longer line. A line that is not UTF-8 stops, or is a block of
    its own without text.
    """
    line, offset = 1, 0
    for data in _byte_blocks(source):
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
        offset += len(data)


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


def _byte_blocks(source: Source) -> Iterator[bytes]:
    pending: list[bytes] = []
    with source.open() as stream:
        while read := stream.read(BLOCK):
            cut = read.rfind(b"\n") + 1
            if not cut:
                pending.append(read)
                continue
            yield b"".join((*pending, read[:cut]))
            pending = [read[cut:]]
    if rest := b"".join(pending):
        yield rest


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
