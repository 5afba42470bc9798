"""Texts, numbers and dates of TOML 1.0, read from a position in a text."""

from __future__ import annotations

import re
from typing import Any

from nlpkernel.plan.source import Slip, shown

# TOML allows no control character in a text but the tab, and line ends between three quotes.
_BASIC = re.compile(r'[^"\\\x00-\x08\x0a-\x1f\x7f]*')
_BASIC_LONG = re.compile(r'[^"\\\x00-\x08\x0b-\x1f\x7f]*')
_LITERAL = re.compile(r"[^'\x00-\x08\x0a-\x1f\x7f]*")
_LITERAL_LONG = re.compile(r"[^'\x00-\x08\x0b-\x1f\x7f]*")
_FOLD = re.compile(r"\\[ \t]*\n[ \t\n]*")
_HEX = {"u": re.compile(r"[0-9A-Fa-f]{4}"), "U": re.compile(r"[0-9A-Fa-f]{8}")}
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}

_TOKEN = re.compile(r"[A-Za-z0-9_+\-.:]+")
_DECIMAL = re.compile(
    r"[+-]?(?:0|[1-9](?:_?[0-9])*)(?P<float>(?:\.[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?)"
)
_RADIX = re.compile(r"0(?:x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|o[0-7](?:_?[0-7])*|b[01](?:_?[01])*)")
_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
_ZONE = r"([Zz]|[+-]([01][0-9]|2[0-3]):([0-5][0-9]))?"
_CONSTANTS = {
    "true": True,
    "false": False,
    **{sign + name: float(sign + name) for sign in ("", "+", "-") for name in ("inf", "nan")},
}


def read_line_text(text: str, start: int) -> tuple[str, int]:
    """The text whose quote stands at `start` and that ends on its line, and the position behind it.

    Raises `Slip` where it is not well-formed, as all functions here do.
    """
    if text[start] == "'":
        return _literal(text, start, start + 1, "'", _LITERAL)
    return _basic(text, start, start + 1, '"', _BASIC)


def read_text(text: str, start: int) -> tuple[str, int]:
    """Like `read_line_text`, and texts between three quotes too."""
    quote = text[start]
    if not text.startswith(quote * 3, start):
        return read_line_text(text, start)
    # A line end directly behind the opening quotes does not count.
    first = start + 4 if text.startswith("\n", start + 3) else start + 3
    if quote == "'":
        value, pos = _literal(text, start, first, "'''", _LITERAL_LONG)
    else:
        value, pos = _basic(text, start, first, '"""', _BASIC_LONG)
    # Up to two quotes may stand directly before the three that close.
    extra = 0
    while extra < 2 and text.startswith(quote, pos + extra):
        extra += 1
    return value + quote * extra, pos + extra


def _literal(text: str, start: int, pos: int, close: str, run: re.Pattern[str]) -> tuple[str, int]:
    first = pos
    while True:
        pos = _past(run, text, pos)
        if text.startswith(close, pos):
            return text[first:pos], pos + len(close)
        if not text.startswith("'", pos):
            raise _broken(text, start, pos, close)
        pos += 1


def _basic(text: str, start: int, pos: int, close: str, run: re.Pattern[str]) -> tuple[str, int]:
    parts = []
    while True:
        end = _past(run, text, pos)
        parts.append(text[pos:end])
        pos = end
        if text.startswith(close, pos):
            return "".join(parts), pos + len(close)
        if text.startswith('"', pos):
            parts.append('"')
            pos += 1
        elif text.startswith("\\", pos):
            part, pos = _escape(text, start, pos, close)
            parts.append(part)
        else:
            raise _broken(text, start, pos, close)


def _past(run: re.Pattern[str], text: str, pos: int) -> int:
    match = run.match(text, pos)
    return match.end() if match else pos


def _broken(text: str, start: int, pos: int, close: str) -> Slip:
    """The mistake of a text that stops at `pos` without its closing quote."""
    if pos < len(text) and text[pos] != "\n":
        hint = f"write it as \\u{ord(text[pos]):04X}" + (" between double quotes" if close[0] == "'" else "")
        return Slip(pos, f"{shown(text[pos])} may not stand in a text", hint)
    if len(close) == 3:
        return Slip(
            start, "the text that begins here is not closed", f"expected {close} before the end of the file"
        )
    return Slip(
        start,
        "the text that begins here has no closing quote",
        f"expected {close} before the end of the line; text of several lines stands between {close * 3}",
    )


def _escape(text: str, start: int, pos: int, close: str) -> tuple[str, int]:
    """What the escape at `pos` stands for, and the position behind it."""
    char = text[pos + 1 : pos + 2]
    if char in _ESCAPES and char:
        return _ESCAPES[char], pos + 2
    if char in _HEX and char:
        digits = _HEX[char].match(text, pos + 2)
        if digits is None:
            wanted = 4 if char == "u" else 8
            raise Slip(pos, f"expected {wanted} hexadecimal digits after '\\{char}'", _backslash(text, start))
        number = int(digits[0], 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise Slip(pos, f"U+{number:04X} is no character")
        return chr(number), digits.end()
    fold = _FOLD.match(text, pos) if len(close) == 3 else None
    if fold:
        return "", fold.end()
    if not char or (char == "\n" and len(close) == 1):
        raise _broken(text, start, pos + 1, close)
    raise Slip(pos, f"{shown(chr(92) + char)} is no escape", _backslash(text, start))


def _backslash(text: str, start: int) -> str:
    """What to do about a backslash that was not meant as an escape."""
    written = re.compile(r'"([^"\n]*)"').match(text, start)
    if written and written[1] and "'" not in written[1]:
        return f"text between single quotes takes backslashes as they are: '{written[1]}'"
    return "a backslash in a text is written twice: \\\\"


def read_word(text: str, start: int) -> tuple[Any, int] | None:
    """The number, truth value or date at `start`, and the position behind it; None where none of them stands there."""
    match = _TOKEN.match(text, start)
    if match is None:
        return None
    word, end = match[0], match.end()
    if word in _CONSTANTS:
        return _CONSTANTS[word], end
    number = _DECIMAL.fullmatch(word)
    if number:
        if number["float"]:
            return float(word), end
        try:
            return int(word), end
        except ValueError:  # Python reads no more than some thousand digits.
            raise Slip(start, f"a number of {len(word)} digits is too long") from None
    if _RADIX.fullmatch(word):
        return int(word, 0), end
    if word[4:5] == "-" or word[2:3] == ":":
        return _read_moment(text, start, word, end)
    return None


def _read_moment(text: str, start: int, word: str, end: int) -> tuple[Any, int] | None:
    """A date, a time, or both. They are rare in a plan, so that what they need is made here and not at import."""
    import datetime as dt

    if re.fullmatch(_DATE, word) and re.compile(" [0-9]{2}:").match(text, end):
        rest = _TOKEN.match(text, end + 1)
        if rest:
            word, end = f"{word} {rest[0]}", rest.end()
    zone: dt.tzinfo | None = None
    try:
        if match := re.fullmatch(_TIME, word):
            hour, minute, second = map(int, match.group(1, 2, 3))
            return dt.time(hour, minute, second, _micros(match[4])), end
        if match := re.fullmatch(_DATE, word):
            return dt.date(*map(int, match.groups())), end
        if match := re.fullmatch(f"{_DATE}[Tt ]{_TIME}{_ZONE}", word):
            if match[9]:
                shift = dt.timedelta(hours=int(match[9]), minutes=int(match[10]))
                zone = dt.timezone(-shift if match[8][0] == "-" else shift)
            elif match[8]:
                zone = dt.UTC
            year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
            return dt.datetime(year, month, day, hour, minute, second, _micros(match[7]), zone), end
    except ValueError as error:
        raise Slip(start, f"{shown(word)} is no date or time: {error}") from None
    return None


def _micros(digits: str | None) -> int:
    return int(digits[:6].ljust(6, "0")) if digits else 0


def explain_word(raw: str) -> tuple[str, str | None, Any]:
    """Why `raw`, which stands where a value should, is none: a message, a hint, and the value that was clearly meant,
    or None."""
    lower = raw.lower()
    if lower in ("true", "false"):
        return f"{shown(raw)} is no TOML value", f"write {lower}", lower == "true"
    if lower in ("none", "null", "nil", "~"):
        return "TOML has no value for nothing", "leave the key out", None
    if lower.lstrip("+-") in ("inf", "infinity", "nan", ".inf", ".nan"):
        name = "nan" if "nan" in lower else "inf"
        return f"{shown(raw)} is no TOML value", f"write {'-' if raw[0] == '-' else ''}{name}", None
    if raw[0] in "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb`":
        return f"{shown(raw[0])} does not begin a text", "write straight quotes: \"...\" or '...'", None
    if re.fullmatch(r"[+-]?0[0-9_]+(\.[0-9]*)?", raw):
        return f"{shown(raw)} is no number", "a number does not begin with a zero", None
    if re.fullmatch(r"[+-]?(\.[0-9]+|[0-9]+\.)([eE][+-]?[0-9]+)?", raw):
        return f"{shown(raw)} is no number", "a point stands between digits: 0.5, 5.0", None
    hint = "text stands in quotes"
    if '"' in raw or "\\" in raw:
        return f"expected a value, found {shown(raw)}", hint, None
    return f"expected a value, found {shown(raw)}", f'{hint}: "{raw}"', raw
