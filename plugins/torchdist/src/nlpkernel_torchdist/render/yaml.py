"""Plain values as YAML 1.2, in one way only: deterministic, and read the same by YAML 1.1. Light."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: Texts that are no number, no truth value, no date and nothing else in any version of YAML when they stand unquoted.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def documents(values: Sequence[Mapping[str, Any]]) -> str:
    """Several documents, each a table."""
    return "".join("---\n" + "".join(f"{line}\n" for line in _lines(value)) for value in values)


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry(f"{_scalar(key)}:", each, "  ")
    elif isinstance(value, list) and value:
        for each in value:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (Mapping, list)) and value:
        yield head
        yield from (f"{indent}{line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    # JSON is YAML, but for the two halves in which it escapes what lies beyond 16 bits.
    return _PAIR.sub(_whole, json.dumps(value))


def _whole(pair: re.Match[str]) -> str:
    letter: str = json.loads(f'"{pair[0]}"')
    return f"\\U{ord(letter):08x}"
