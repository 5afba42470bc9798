"""Strict JSON with the place of every key and value.

The values are those of the standard library's reader, except that what is no JSON is refused: NaN and Infinity, numbers
that no float holds, halves of surrogate pairs. A key that is written twice is a problem; reading goes on after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from nlpkernel.errors import Place, Problem
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.source import DEEPEST, Slip, Source, shown, too_deep

_BLANK = re.compile(r"[ \t\n\r]*")
_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<float>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_WORD = re.compile(r"[\w.+-]+")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\", "/": "/"}
_CONSTANTS = {"true": True, "false": False, "null": None}
_OTHERS = {"true": "true", "false": "false", "none": "null", "null": "null"}


def read_json(text: str, file: str) -> tuple[Node, list[Problem]]:
    """The value of a JSON document, and all that is wrong with it.

    After a syntax error the tree holds what was read before it. Of two values under one key the first one stays.
    """
    source = Source(text, file)
    reader = _Reader(source)
    try:
        reader.document()
    except Slip as slip:
        source.slipped(slip)
    return reader.root, source.problems


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.pos = 0
        self.root = Node({}, Place(source.file))

    def document(self) -> None:
        self.blank()
        self.value(1, self.hold)
        if self.blank():
            raise Slip(self.pos, f"expected the end of the file, found {self.source.found(self.pos)}")

    def hold(self, node: Node) -> None:
        self.root = node

    def blank(self) -> str:
        """Skip white space; the character behind it, empty at the end."""
        self.pos = _BLANK.match(self.text, self.pos).end()  # type: ignore[union-attr]
        return self.text[self.pos : self.pos + 1]

    def value(self, depth: int, keep: Callable[[Node], object]) -> None:
        """Read a value and give its node to `keep`: containers at once, so that a later mistake does not lose them."""
        if depth > DEEPEST:
            raise too_deep(self.pos)
        start = self.pos
        char = self.text[start : start + 1]
        if char == "{":
            node = Node({}, self.source.place(start))
            keep(node)
            self.members(node, depth)
        elif char == "[":
            node = Node([], self.source.place(start))
            keep(node)
            self.items(node, depth)
        elif char == '"':
            keep(Node(self.string(), self.source.place(start)))
        else:
            keep(Node(self.word(), self.source.place(start)))

    def members(self, table: Node, depth: int) -> None:
        self.pos += 1
        char = self.blank()
        while char != "}":
            start = self.pos
            if char != '"':
                hint = "a key stands in double quotes" if char == "'" or char.isalpha() else self.remark(char)
                raise Slip(start, f"expected a key, found {self.source.found(start)}", hint)
            key = self.string()
            if self.blank() != ":":
                found = self.source.found(self.pos)
                hint = "JSON writes ':' between key and value" if found == "'='" else None
                raise Slip(self.pos, f"expected ':' after the key {shown(key)}, found {found}", hint)
            self.pos += 1
            self.blank()
            self.value(depth + 1, partial(self.source.put, table, key, start))
            char = self.separator("}", "object")
        self.pos += 1

    def items(self, array: Node, depth: int) -> None:
        self.pos += 1
        char = self.blank()
        while char != "]":
            self.value(depth + 1, array.value.append)
            char = self.separator("]", "array")
        self.pos += 1

    def separator(self, close: str, what: str) -> str:
        """Skip the comma between two members. Returns the character of the next one, or the closing bracket."""
        char = self.blank()
        if char == ",":
            comma = self.pos
            self.pos += 1
            char = self.blank()
            if char == close:
                message = f"expected another entry after ',', found '{close}'"
                self.source.note(comma, message, f"the last entry of an {what} has no comma behind it")
        elif char != close:
            message = f"expected ',' or '{close}', found {self.source.found(self.pos)}"
            raise Slip(self.pos, message, self.remark(char))
        return char

    def remark(self, char: str) -> str | None:
        return "JSON has no comments" if char in ("/", "#") and char else None

    def string(self) -> str:
        start = self.pos
        parts = []
        pos = start + 1
        while True:
            match = _RUN.match(self.text, pos)
            assert match is not None
            parts.append(match[0])
            pos = match.end()
            char = self.text[pos : pos + 1]
            if char == '"':
                self.pos = pos + 1
                return "".join(parts)
            if char != "\\":
                if char in ("", "\n", "\r"):
                    raise Slip(
                        start, "the text that begins here has no closing quote", 'expected " on the same line'
                    )
                raise Slip(pos, f"{shown(char)} may not stand in a text", f"write it as \\u{ord(char):04x}")
            part, pos = self.escape(pos)
            parts.append(part)

    def escape(self, pos: int) -> tuple[str, int]:
        char = self.text[pos + 1 : pos + 2]
        if char in _ESCAPES:
            return _ESCAPES[char], pos + 2
        digits = _HEX.match(self.text, pos + 2)
        if char != "u" or digits is None:
            raise Slip(
                pos, f"{shown(chr(92) + char)} is no escape", "a backslash in a text is written twice: \\\\"
            )
        number, end = int(digits[0], 16), digits.end()
        if 0xD800 <= number < 0xDC00 and self.text.startswith("\\u", end):
            low = _HEX.match(self.text, end + 2)
            if low and 0xDC00 <= int(low[0], 16) < 0xE000:
                return chr(0x10000 + (number - 0xD800 << 10) + int(low[0], 16) - 0xDC00), low.end()
        if 0xD800 <= number < 0xE000:
            raise Slip(pos, f"\\u{digits[0]} is half of a pair and no character")
        return chr(number), end

    def word(self) -> Any:
        """A number or a constant."""
        start = self.pos
        match = _WORD.match(self.text, start)
        word = match[0] if match else ""
        self.pos = start + len(word)
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        number = _NUMBER.fullmatch(word)
        if number:
            return self.number(start, word, bool(number["float"]))
        hint = None
        if word.lower() in _OTHERS:
            hint = f"write {_OTHERS[word.lower()]}"
        elif word.lstrip("+-").lower() in ("nan", "inf", "infinity"):
            hint = "JSON has no such number"
        elif self.text.startswith("'", start):
            hint = "text stands in double quotes"
        elif word and word[0].isalpha():
            hint = f'text stands in quotes: "{word}"'
        raise Slip(start, f"expected a value, found {self.source.found(start)}", hint)

    def number(self, start: int, word: str, is_float: bool) -> int | float:
        if not is_float:
            try:
                return int(word)
            except ValueError:  # Python reads no more than some thousand digits.
                raise Slip(start, f"a number of {len(word)} digits is too long") from None
        value = float(word)
        if value in (float("inf"), float("-inf")):
            raise Slip(start, f"{shown(word)} is too large for a number")
        return value
