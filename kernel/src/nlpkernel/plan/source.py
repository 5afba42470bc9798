"""Text with places: what the readers of plans share."""

from __future__ import annotations

import re
from bisect import bisect_right

from nlpkernel.errors import Place, Problem
from nlpkernel.plan.codes import DEPTH, DUPLICATE, SYNTAX
from nlpkernel.plan.nodes import Node

#: Levels of tables and lists that may stand in each other.
DEEPEST = 100

_LINE_END = re.compile(r"\r\n?|\n")
_WORD = re.compile(r"[^\W_][\w.+-]*")


class Slip(Exception):
    """A mistake in a text at `offset`, after which what surrounds it cannot be read on."""

    def __init__(self, offset: int, message: str, hint: str | None = None, code: str = SYNTAX) -> None:
        super().__init__(message)
        self.offset, self.message, self.hint, self.code = offset, message, hint, code


class Source:
    """A text, its name, and the problems found in it. Offsets count code points from 0.

    With `fixed` every place is that one: a value that was not written in a file.
    """

    def __init__(self, text: str, file: str, fixed: Place | None = None) -> None:
        self.text = text
        self.file = file
        self.problems: list[Problem] = []
        self._fixed = fixed
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def place(self, offset: int) -> Place:
        """Line and column of an offset."""
        if self._fixed is not None:
            return self._fixed
        line = bisect_right(self._starts, offset)
        return Place(self.file, line, offset - self._starts[line - 1] + 1)

    def line_start(self, offset: int) -> int:
        """The offset at which the line of `offset` begins."""
        return self._starts[bisect_right(self._starts, offset) - 1]

    def next_line(self, offset: int) -> int:
        """The offset at which the line after that of `offset` begins; the end of the text after the last one."""
        line = bisect_right(self._starts, offset)
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def note(self, offset: int, message: str, hint: str | None = None, code: str = SYNTAX) -> None:
        """Record a problem at `offset`."""
        self.problems.append(Problem(code=code, message=message, place=self.place(offset), hint=hint))

    def put(self, table: Node, key: str, offset: int, node: Node) -> None:
        """Put a node under the key that stands at `offset`; of a key that is written twice the first one counts."""
        node.key_place = self.place(offset)
        first: Node = table.value.setdefault(key, node)
        if first is not node:
            message = f"the key {shown(key)} is written twice; the first is at {first.key_place}"
            self.note(offset, message, "remove one of them", DUPLICATE)

    def slipped(self, slip: Slip) -> None:
        """Record a mistake that ended something."""
        self.note(slip.offset, slip.message, slip.hint, slip.code)

    def found(self, offset: int) -> str:
        """What stands at `offset`, in words for a message."""
        if offset >= len(self.text):
            return "the end of the file"
        if self.text[offset] in "\r\n":
            return "the end of the line"
        word = _WORD.match(self.text, offset)
        return shown(word[0] if word else self.text[offset])


def shown(text: str) -> str:
    """A piece of text in single quotes, cut where it is long; characters that do not print by their numbers."""
    if len(text) == 1 and not text.isprintable():
        return f"the character U+{ord(text):04X}"
    text = f"{text[:40]}..." if len(text) > 43 else text
    return "'" + "".join(char if char.isprintable() else f"\\u{ord(char):04X}" for char in text) + "'"


def too_deep(offset: int) -> Slip:
    """The mistake of nesting deeper than `DEEPEST`."""
    return Slip(offset, f"tables and lists stand more than {DEEPEST} levels deep in each other", code=DEPTH)
