"""JSON files: one array of objects, or one object of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from nlpkernel.errors import Place
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_text.reading.blocks import pieces
from nlpkernel_text.reading.columns import BROKEN, Picker, lacking, without_halves
from nlpkernel_text.reading.faults import Damaged, Skipped, snippet

#: Longest record, in characters, beyond what is read at once.
LONGEST = 1 << 26
#: Records that are given at once.
_RECORDS = 1024

_SPACE = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


class Json:
    """One array of objects, or one object whose values are objects, read record by record. Its places are the numbers
    of the records.

    path: keys, with dots between them, that lead to that array or object, where it is not the whole file.
    """

    unit: Literal["line", "record"] = "record"
    text = True

    def __init__(self, path: str = "") -> None:
        self.path = path

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader. What follows a mistake cannot be read: where the plan says to skip, the rest is left out."""
        text = _Text(source, faults)
        picker = Picker(columns)
        failed: Damaged | None = None
        try:
            if not text.peek():
                faults.count("empty files")
                return
            self._enter(text)
            for number, record in enumerate(_records(text), 1):
                if not isinstance(record, dict):
                    what = f"record {number} is no JSON object but {json.dumps(record)[:40]}"
                    faults.broken(BROKEN, "TXT004", what, Place(source.shown, number, 1))
                elif (missing := picker.add(record, number)) is not None:
                    lacking(faults, record, missing, Place(source.shown, number, 1))
                if len(picker.places) == _RECORDS and (records := _whole(picker, source, faults)) is not None:
                    yield records
            if not self.path and text.peek():
                raise text.wrong("more follows the end of the records")
        except Damaged as error:
            failed = error
        except Skipped:
            # Counted already, as what is not UTF-8.
            pass
        if (records := _whole(picker, source, faults)) is not None:
            yield records
        if failed is not None:
            raise failed

    def _enter(self, text: _Text) -> None:
        """Go to where `path` leads."""
        for name in self.path.split(".") if self.path else ():
            text.expect("{", f"an object with the key {name!r}")
            while True:
                if text.peek() == "}":
                    raise text.wrong(f"there is no key {name!r} of the path {self.path!r}")
                key = text.key()
                if key == name:
                    break
                text.value()
                if text.peek() != "}":
                    text.expect(",", "a comma or the end of the object")


def _records(text: _Text) -> Iterator[Any]:
    """The values of the array or object at this place, and pass its end."""
    begin = text.peek()
    if begin not in ("[", "{"):
        raise text.wrong("this is no array of records, and no object of them")
    text.expect(begin, "")
    end = "]" if begin == "[" else "}"
    if text.peek() == end:
        text.expect(end, "")
        return
    while True:
        if begin == "{":
            text.key()
        yield text.value()
        if text.peek() == end:
            text.expect(end, "")
            return
        text.expect(",", f"a comma or {end}")


def _whole(picker: Picker, source: Source, faults: Faults) -> Records | None:
    records = picker.take()
    return without_halves(records, source.shown, faults) if records is not None else None


class _Text:
    """The text of a file, of which only what is not yet read is kept."""

    def __init__(self, source: Source, faults: Faults) -> None:
        self._source = source
        self._pieces = pieces(source, faults)
        self._text, self._at = "", 0
        self._ended = False
        self._line, self._column = 1, 1

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._pass(space.end())
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def expect(self, character: str, what: str) -> None:
        """Pass one character. Raise Damaged where another is there."""
        if self.peek() != character:
            raise self.wrong(f"{what} is expected")
        self._pass(self._at + 1)

    def key(self) -> str:
        """Pass a key and the colon after it."""
        if self.peek() != '"':
            raise self.wrong("a key in quotes is expected")
        key: str = self.value()
        self.expect(":", "a colon")
        return key

    def value(self) -> Any:
        """Pass a value."""
        if not self.peek():
            raise self.wrong("a value is expected")
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # What looks like a mistake may be the end of what is there.
                if len(self._text) - self._at > LONGEST or not self._more():
                    self._pass(min(error.pos, len(self._text)))
                    raise self.wrong(f"no JSON: {error.msg}") from None
                continue
            except (ValueError, RecursionError) as error:
                raise self.wrong(f"JSON that cannot be read: {error}") from None
            # A number may go on.
            if end < len(self._text) or not self._more():
                self._pass(end)
                return value

    def wrong(self, what: str) -> Damaged:
        """The error for what is at this place."""
        return Damaged.of(
            "files with broken JSON",
            "TXT004",
            f"{what} at {snippet(self._text, self._at)}",
            Place(self._source.shown, self._line, self._column),
        )

    def _pass(self, end: int) -> None:
        if newlines := self._text.count("\n", self._at, end):
            self._line += newlines
            self._column = end - self._text.rfind("\n", self._at, end)
        else:
            self._column += end - self._at
        self._at = end

    def _more(self) -> bool:
        """Read on; tell whether there was more."""
        if self._ended:
            return False
        found, size = [], 0
        # As much again as there is: a long record is then decoded few times.
        while size <= len(self._text) - self._at:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
                break
            found.append(piece)
            size += len(piece)
        self._text = self._text[self._at :] + "".join(found)
        self._at = 0
        return size > 0
