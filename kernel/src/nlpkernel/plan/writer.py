"""Plain values to TOML that a person likes to read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: What one-line arrays and inline tables may take, key included.
_WIDE = 88
_INLINE = 60
#: Comments of a table stand under each other, unless a line is longer than this.
_ALIGNED = 48

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# What has to be escaped, and beside it what an editor does not show: C1 controls, separators, marks of direction.
_HIDDEN = re.compile(
    '[\\\\"\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]'
)
_HIDDEN_LONG = re.compile(
    "[\\\\\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

Comments = Callable[[str], str | None]


def _none(path: str) -> None:
    """No comment."""


def write_toml(value: Mapping[str, Any], comments: Comments = _none) -> str:
    """`value` as a TOML document; what it reads back as is equal to it.

    The values of a table come first, then its tables. A table of a table stands on one line where it is short and has
    no comments inside; lists of tables are written with [[headers]]. `comments` is asked with the path of each key
    ("model.preset", "monitor[0].use") and each header ("model", "monitor[0]"); its answer stands behind it.
    Raises TypeError, which names the path, for what TOML cannot express: None, keys that are not text, other types.
    """
    writer = _Writer(comments)
    writer.table(value, "", "")
    return "\n".join(writer.lines).lstrip("\n") + "\n" if writer.lines else ""


class _Writer:
    def __init__(self, comments: Comments) -> None:
        self.comments = comments
        self.lines: list[str] = []
        # Lines of the present table, with their comments; they are aligned when it ends.
        self.block: list[tuple[str, str]] = []

    def table(self, table: Mapping[str, Any], header: str, path: str) -> None:
        """The lines of a table whose header, if it needs one, stands already."""
        later: list[tuple[str, str, Any]] = []
        for key, value in table.items():
            name, below = _key(key, path), _below(path, key)
            if self.has_header(value, name, below, top=not header):
                later.append((f"{header}.{name}" if header else name, below, value))
            else:
                self.pair(name, value, below)
        self.flush()
        for name, below, value in later:
            if isinstance(value, Mapping):
                if self.comment(below) or not self.only_headers(value, below):
                    self.open(f"[{name}]", below)
                self.table(value, name, below)
                continue
            for index, item in enumerate(value):
                self.open(f"[[{name}]]", f"{below}[{index}]")
                self.table(item, name, f"{below}[{index}]")

    def has_header(self, value: Any, name: str, path: str, *, top: bool) -> bool:
        """Whether a value is written as a table, or tables, of its own."""
        if isinstance(value, Mapping):
            return top or self.commented(value, path) or len(f"{name} = {_inline(value, path)}") > _INLINE
        return _is_list(value) and bool(value) and all(isinstance(item, Mapping) for item in value)

    def only_headers(self, table: Mapping[str, Any], path: str) -> bool:
        """Whether a table is there already by the headers of what it holds."""
        return bool(table) and all(
            self.has_header(value, _key(key, path), _below(path, key), top=False)
            for key, value in table.items()
        )

    def commented(self, table: Mapping[str, Any], path: str) -> bool:
        """Whether anything inside has a comment, or is a list of tables."""
        for key, value in table.items():
            below = _below(path, key)
            if self.comment(below) or (isinstance(value, Mapping) and self.commented(value, below)):
                return True
            if _is_list(value) and any(isinstance(item, Mapping) for item in value):
                return True
        return False

    def comment(self, path: str) -> str:
        """The comment for a path on one line; empty if there is none."""
        text = self.comments(path)
        return " ".join("".join(char if char.isprintable() else " " for char in text or "").split())

    def open(self, header: str, path: str) -> None:
        self.lines.append("")
        self.block.append((header, self.comment(path)))
        self.flush()

    def pair(self, name: str, value: Any, path: str) -> None:
        comment = self.comment(path)
        if isinstance(value, str) and "\n" in value:
            self.block.append((f"{name} = {_long(value, path)}", comment))
            return
        line = f"{name} = {_inline(value, path)}"
        if not _is_list(value) or len(line) <= _WIDE:
            self.block.append((line, comment))
            return
        self.block.append((f"{name} = [", comment))
        self.block += [(f"    {_inline(item, f'{path}[{index}]')},", "") for index, item in enumerate(value)]
        self.block.append(("]", ""))

    def flush(self) -> None:
        """Write the lines of the present table, their comments under each other."""
        widths = [
            len(line)
            for line, comment in self.block
            if comment and "\n" not in line and len(line) <= _ALIGNED
        ]
        column = max(widths, default=0)
        for line, comment in self.block:
            self.lines.append(f"{line.ljust(column)}  # {comment}" if comment else line)
        self.block = []


def _below(path: str, key: str) -> str:
    """The path of a key, as `Node.walk` gives it."""
    return f"{path}.{key}" if path else key


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{path or 'the plan'}: a key must be text, not {key!r}")
    return key if _BARE_KEY.fullmatch(key) else _quoted(key, path)


def _inline(value: Any, path: str) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        pairs = [f"{_key(key, path)} = {_inline(each, _below(path, key))}" for key, each in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if _is_list(value):
        return f"[{', '.join(_inline(item, f'{path}[{index}]') for index, item in enumerate(value))}]"
    if isinstance(value, str):
        return _quoted(value, path)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        # Python writes nan, inf and exponents as TOML does.
        return float.__repr__(value)
    if value is None:
        raise TypeError(f"{path}: TOML has no value for None; leave the key out")
    return _moment(value, path)


def _moment(value: Any, path: str) -> str:
    import datetime as dt

    if isinstance(value, dt.datetime):
        shift = value.utcoffset()
        if shift is None or shift.total_seconds() % 60 == 0:
            return value.isoformat()
    elif isinstance(value, dt.date) or (isinstance(value, dt.time) and value.tzinfo is None):
        return value.isoformat()
    raise TypeError(f"{path}: TOML has no value for {value!r}, a {type(value).__name__}")


def _quoted(text: str, path: str) -> str:
    """A text on one line; between single quotes where it holds backslashes and nothing that needs them."""
    _check(text, path)
    if "\\" in text and "'" not in text and not _HIDDEN.search(text.replace("\\", "").replace('"', "")):
        return f"'{text}'"
    return f'"{_HIDDEN.sub(_escaped, text)}"'


def _long(text: str, path: str) -> str:
    """A text of several lines between three quotes."""
    _check(text, path)
    escaped = _HIDDEN_LONG.sub(_escaped, text).replace('"""', '""\\"')
    return f'"""\n{escaped}"""'


def _check(text: str, path: str) -> None:
    if any("\ud800" <= char < "\ue000" for char in text):
        raise TypeError(f"{path}: TOML has no value for half of a surrogate pair")


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or f"\\u{ord(char):04X}"
