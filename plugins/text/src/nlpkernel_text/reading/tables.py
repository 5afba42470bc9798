"""Rows of files with a separator between fields.

CSV is that of RFC 4180: fields in quotes may hold commas, line ends and doubled quotes. TSV is that of IANA:
a tab separates fields and nothing is quoted. Python's csv module is not used because it ends rows at a lone
CR.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nlpkernel.errors import Place
from nlpkernel.hookspecs.reader import Faults, Source
from nlpkernel_text.reading.blocks import lines_of, whole_lines
from nlpkernel_text.reading.faults import snippet

#: Name of what is left out, in the run's report.
BROKEN = "broken records"
#: Longest record of a CSV file, in characters: a quote that does not end would take the whole file otherwise.
LONGEST = 1 << 24

#: The inside of a field in quotes, as far as the line has it.
_INSIDE = re.compile(r'[^"]*(?:""[^"]*)*')


class Line(NamedTuple):
    """A line of a file, without its LF."""

    number: int
    text: str


class Row(NamedTuple):
    """The fields of a row that begins on line `line`. rest: the lines after it that it took."""

    line: int
    fields: list[str]
    rest: Sequence[Line] = ()


class _Record:
    """A CSV record, read line by line. Where it is broken, `fault` says how, and the line and column."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self.fields: list[str] = []
        self.fault: tuple[str, int, int] | None = None
        self._open: list[str] | None = None

    def ends(self, line: Line) -> bool:
        """Take the next line; tell whether the record ends with it."""
        text, at, separator = line.text, 0, self._separator
        while True:
            if self._open is None and text.startswith('"', at):
                self.fault = (f"a quote that does not end: {snippet(text, at)}", line.number, at + 1)
                self._open = []
                at += 1
            if self._open is not None:
                inside = _INSIDE.match(text, at)
                assert inside is not None
                end = inside.end()
                self._open.append(text[at:end])
                if end == len(text):
                    self._open.append("\n")
                    return False
                self.fields.append("".join(self._open).replace('""', '"'))
                self._open = self.fault = None
                at = end + 1
                if at < len(text) and text[at] != separator and text[at:] != "\r":
                    what = f"text after the quote that ends a field: {snippet(text, at)}"
                    self.fault = (what, line.number, at + 1)
                    return True
            else:
                end = text.find(separator, at)
                # A quote inside a field that does not begin with one is a character like others.
                self.fields.append(text[at:end] if end >= 0 else text[at:].removesuffix("\r"))
                at = end if end >= 0 else len(text)
            if not text.startswith(separator, at):
                return True
            at += 1


def quoted_rows(source: Source, faults: Faults, separator: str, again: deque[Line]) -> Iterator[Row]:
    """The rows of a file whose fields may be in quotes, its header among them. Blank lines are left out and
    counted.

    again: lines that are read before all others; a stray quote may have taken them into a row that is broken.
    """
    physical = _physical_lines(source, faults)
    while (line := again.popleft() if again else next(physical, None)) is not None:
        bare = line.text.removesuffix("\r")
        if '"' not in bare:
            if bare:
                yield Row(line.number, bare.split(separator))
            else:
                faults.count("blank lines")
            continue
        record, taken, size = _Record(separator), [line], len(line.text)
        ended = record.ends(line)
        while not ended and size <= LONGEST:
            more = again.popleft() if again else next(physical, None)
            if more is None:
                break
            taken.append(more)
            size += len(more.text)
            ended = record.ends(more)
        if record.fault is None:
            yield Row(line.number, record.fields, taken[1:])
            continue
        what, number, column = record.fault
        faults.broken(BROKEN, "TXT004", what, Place(source.shown, number, column))
        # A stray quote takes what comes until the next one; only its own line is broken.
        again.extendleft(reversed(taken[1:]))


def are_rows(lines: Sequence[Line], separator: str, width: int) -> bool:
    """Whether most of these lines are rows of `width` fields by themselves, and so no part of a longer one."""
    good = 0
    for line in lines:
        record = _Record(separator)
        good += record.ends(line) and record.fault is None and len(record.fields) == width
    return 2 * good > len(lines)


def bare_rows(source: Source, faults: Faults, separator: str) -> Iterator[Row]:
    """The rows of a file in which nothing is quoted, its header among them. Blank lines are left out and counted."""
    for first, block in whole_lines(source, faults):
        for number, line in enumerate(lines_of(block) if block is not None else (), first):
            if line:
                yield Row(number, line.split(separator))
            else:
                faults.count("blank lines")


def _physical_lines(source: Source, faults: Faults) -> Iterator[Line]:
    """Lines with the CR that may end them: inside quotes it belongs to the text."""
    for first, block in whole_lines(source, faults):
        if block is not None:
            lines = block.split("\n")
            if not lines[-1]:
                lines.pop()
            yield from map(Line, range(first, first + len(lines)), lines)
