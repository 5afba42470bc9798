"""TOML 1.0 with the place of every key and value, read on after a mistake.

The standard library's reader gives no places and stops at the first mistake. What this one accepts, and the values it
gives, are the same.
"""

from __future__ import annotations

import re

from nlpkernel.errors import Place, Problem
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.source import DEEPEST, Slip, Source, shown, too_deep
from nlpkernel.plan.toml_scalars import explain_word, read_line_text, read_text, read_word
from nlpkernel.plan.toml_tables import Part, Tables

_BLANK = re.compile(r"[ \t]*")
_LINES = re.compile(r"[ \t\n]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT = re.compile(r"#[^\x00-\x08\x0a-\x1f\x7f]*")
# How far an unquoted text goes on a line, and inside brackets.
_LINE_WORD = re.compile(r"[^#\n]*")
_ITEM_WORD = re.compile(r"[^#\n,\]}]*")
# Lines at which reading goes on after a mistake in something that may have several lines. No entry of an array looks
# like them.
_HEADER_LINE = re.compile(
    r"[ \t]*\[\[?[ \t]*(?!(?:true|false|inf|nan)\b)[A-Za-z_][\w .\"'-]*\]\]?[ \t]*(?:#.*)?$", re.MULTILINE
)
_KEY_LINE = re.compile(r"[ \t]*(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')(?:[ \t]*\.[ \t]*[\w\"'-]+)*[ \t]*=")

_QUOTE_KEY = "a key of other characters than A-Z a-z 0-9 _ - stands in quotes"


def read_toml(text: str, file: str) -> tuple[Node, list[Problem]]:
    """The root table of a TOML document, and all that is wrong with it.

    The tree holds what could be read, and where a line was clearly meant (an unquoted word, `True`) what it meant. Of
    two values under one key the first one stays. Places count lines and columns from 1; the root's has line 0.
    """
    text = text.replace("\r\n", "\n")
    reader = _Reader(Source(text, file))
    root = reader.read_document()
    return root, reader.source.problems


def read_value(text: str, place: Place) -> Node | None:
    """One TOML value, all of it at `place`; None where `text` is no TOML value."""
    reader = _Reader(Source(text.replace("\r\n", "\n"), place.file, place))
    try:
        node = reader.read_alone()
    except Slip:
        return None
    return None if reader.source.problems else node


class _Reader:
    """Reads from `pos` onwards; a `Slip` ends what is being read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.pos = 0
        self.tables = Tables(source, Node({}, Place(source.file)))
        # The table that keys go to, and how deep it lies.
        self.table = self.tables.root
        self.depth = 0
        # Brackets that are open, and the first line end in the innermost inline table; -1 before there is one.
        self.brackets = 0
        self.crossed = -1

    def read_document(self) -> Node:
        while self.pos < len(self.text):
            start = self.pos
            self.brackets, self.crossed = 0, -1
            try:
                self.statement()
                start = self.source.line_start(self.pos)
                self.line_end()
            except Slip as slip:
                self.source.slipped(slip)
                self.pos = self.resume(start, slip.offset)
        return self.tables.root

    def read_alone(self) -> Node:
        self.blank()
        node = self.value(1, None)
        self.blank()
        if self.pos < len(self.text):
            raise Slip(self.pos, f"expected the end, found {self.source.found(self.pos)}")
        return node

    def char(self) -> str:
        """The character at the present position; empty at the end."""
        return self.text[self.pos : self.pos + 1]

    def blank(self) -> str:
        """Skip blanks on a line; the character behind them."""
        self.pos = _BLANK.match(self.text, self.pos).end()  # type: ignore[union-attr]
        return self.text[self.pos : self.pos + 1]

    def lines(self) -> str:
        """Skip blanks, comments and line ends; the character behind them."""
        while True:
            self.pos = _LINES.match(self.text, self.pos).end()  # type: ignore[union-attr]
            if self.char() != "#":
                return self.char()
            self.comment()

    def comment(self) -> None:
        self.pos = _COMMENT.match(self.text, self.pos).end()  # type: ignore[union-attr]
        if self.char() not in ("", "\n"):
            raise Slip(self.pos, f"{self.source.found(self.pos)} may not stand in a comment")

    def statement(self) -> None:
        char = self.blank()
        if char == "[":
            self.header()
        elif char not in ("", "\n", "#"):
            keys = self.keys()
            self.equals(keys)
            self.tables.assign(self.table, keys, self.value(self.depth + len(keys), _LINE_WORD))

    def line_end(self) -> None:
        char = self.blank()
        if char == "#":
            self.comment()
        elif char not in ("", "\n"):
            hint = None
            if char == ",":
                hint = "a line ends without a comma"
            elif _KEY_LINE.match(self.text, self.pos):
                hint = "each setting stands on a line of its own"
            elif char.isalnum():
                hint = "text stands in quotes"
            raise Slip(self.pos, f"expected the end of the line, found {self.source.found(self.pos)}", hint)
        self.pos += 1

    def resume(self, start: int, offset: int) -> int:
        """Where to read on after a mistake at `offset` in the statement that began at `start`."""
        line = self.source.line_start(offset)
        if line > start and self.begins(line) and not self.text[line:offset].strip(" \t"):
            return line
        end = self.source.next_line(offset)
        if self.brackets:
            text = self.text[start:end]
            several = sum(map(text.count, "[{")) > sum(map(text.count, "]}"))
        else:
            several = line > start or self.text.startswith(('"""', "'''"), offset)
        line = end
        while several and line < len(self.text) and not self.begins(line):
            line = self.source.next_line(line)
        return line

    def begins(self, line: int) -> bool:
        return bool(_KEY_LINE.match(self.text, line) or _HEADER_LINE.match(self.text, line))

    # Keys and headers

    def header(self) -> None:
        start = self.pos
        many = self.text.startswith("[[", start)
        close = "]]" if many else "]"
        self.tables.new_section()
        # Keys below a header that cannot be read belong to no table that is known.
        self.table = Node({}, self.source.place(start))
        self.pos += len(close)
        self.blank()
        keys = self.keys()
        message = f"expected '{close}' at the end of the header, found {self.source.found(self.pos)}"
        if self.text.startswith(close, self.pos):
            self.pos += len(close)
        elif self.char() in ("", "\n", "#", "]"):
            self.source.note(self.pos, message)
            self.pos += self.char() == "]"
        else:
            raise Slip(self.pos, message, _QUOTE_KEY)
        self.table = self.tables.enter(keys, many, start)
        self.depth = len(keys) + many

    def keys(self) -> list[Part]:
        parts = [self.key()]
        while self.blank() == ".":
            self.pos += 1
            self.blank()
            parts.append(self.key())
        if len(parts) > DEEPEST:
            raise too_deep(parts[0][1])
        return parts

    def key(self) -> Part:
        start = self.pos
        match = _BARE_KEY.match(self.text, start)
        if match:
            self.pos = match.end()
            return match[0], start
        if self.text.startswith(('"', "'"), start):
            name, self.pos = read_line_text(self.text, start)
            return name, start
        hint = _QUOTE_KEY if self.char().isalpha() else None
        raise Slip(start, f"expected a key, found {self.source.found(start)}", hint)

    def equals(self, keys: list[Part]) -> None:
        char = self.char()
        if char != "=":
            key = self.text[keys[0][1] : self.pos].rstrip()
            message = f"expected '=' after the key {shown(key)}, found {self.source.found(self.pos)}"
            if char != ":":
                raise Slip(self.pos, message, self.missing_equals(key))
            # What is meant is clear, so the value is read too.
            self.source.note(self.pos, message, f"TOML writes {key} = ...")
        self.pos += 1
        self.blank()

    def missing_equals(self, key: str) -> str:
        rest = _LINE_WORD.match(self.text, self.pos)[0].strip()  # type: ignore[index]
        if "=" in rest or not rest.isascii():
            return _QUOTE_KEY
        return f"write {key} = {rest or '...'}"

    # Values

    def value(self, depth: int, words: re.Pattern[str] | None) -> Node:
        """The value at the present position. `words` says how far an unquoted text would go."""
        if depth > DEEPEST:
            raise too_deep(self.pos)
        start = self.pos
        char = self.char()
        if char == "[":
            return self.array(depth)
        if char == "{":
            return self.inline_table(depth)
        if char == '"' or char == "'":
            value, self.pos = read_text(self.text, start)
        else:
            read = read_word(self.text, start)
            if read is None:
                return self.unquoted(words)
            value, self.pos = read
        return Node(value, self.source.place(start))

    def unquoted(self, words: re.Pattern[str] | None) -> Node:
        """What stands where a value should. If it is clear what it means, it is that after all, beside the problem."""
        start = self.pos
        raw = words.match(self.text, start)[0].rstrip() if words else ""  # type: ignore[index]
        if not raw or raw[0] in "=,]}" or not raw.isprintable():
            raise Slip(start, f"expected a value, found {self.source.found(start)}")
        message, hint, meant = explain_word(raw)
        if meant is None:
            raise Slip(start, message, hint)
        self.source.note(start, message, hint)
        self.pos = start + len(raw)
        return Node(meant, self.source.place(start))

    def array(self, depth: int) -> Node:
        start = self.pos
        items: list[Node] = []
        self.brackets += 1
        self.pos += 1
        while self.lines() != "]":
            if self.pos >= len(self.text) or self.at_statement():
                raise self.unclosed(start, "array", "]")
            items.append(self.value(depth + 1, _ITEM_WORD))
            char = self.lines()
            if char == ",":
                self.pos += 1
            elif char != "]":
                raise self.unclosed(start, "array", "]")
        self.pos += 1
        self.brackets -= 1
        return Node(items, self.source.place(start))

    def at_statement(self) -> bool:
        """Whether a line begins here that no array holds: the array before it was not closed."""
        line = self.source.line_start(self.pos)
        return not self.text[line : self.pos].strip(" \t") and self.begins(line)

    def inline_table(self, depth: int) -> Node:
        start = self.pos
        table = Node({}, self.source.place(start))
        section, crossed = self.tables.new_section(), self.crossed
        self.crossed = -1
        self.brackets += 1
        self.pos += 1
        try:
            self.pairs(table, depth, start)
        finally:
            self.tables.end_section(section)
        if self.crossed >= 0:
            hint = "write what needs several lines under a [header]"
            self.source.note(self.crossed, "an inline table stands on one line", hint)
        self.crossed = crossed
        self.pos += 1
        self.brackets -= 1
        return table

    def pairs(self, table: Node, depth: int, start: int) -> None:
        """Keys and values up to the brace that closes. Line ends are read over, so that one mistake stays one."""
        while self.one_line() != "}":
            if self.pos >= len(self.text):
                raise self.unclosed(start, "inline table", "}")
            keys = self.keys()
            self.equals(keys)
            self.tables.assign(table, keys, self.value(depth + len(keys), _ITEM_WORD))
            self.blank()
            end = self.pos
            char = self.one_line()
            if char == ",":
                self.pos += 1
                if self.one_line() == "}":
                    hint = "an inline table ends without a comma"
                    self.source.note(self.pos, "expected a key after ',', found '}'", hint)
            elif char != "}":
                # It was meant to end here, so that the next line is one of its own.
                self.pos = end
                self.brackets -= 1
                raise self.unclosed(start, "inline table", "}")

    def one_line(self) -> str:
        """Skip blanks in an inline table, and line ends too, but remember the first."""
        if self.blank() in ("#", "\n") and self.pos < len(self.text):
            self.crossed = self.pos if self.crossed < 0 else self.crossed
            return self.lines()
        return self.char()

    def unclosed(self, start: int, what: str, close: str) -> Slip:
        place = self.source.place(start)
        return Slip(
            self.pos,
            f"expected ',' or '{close}' in the {what} that begins at {place.line}:{place.column}, "
            f"found {self.source.found(self.pos)}",
        )
