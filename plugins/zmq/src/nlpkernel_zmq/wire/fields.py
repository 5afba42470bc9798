"""What a field of a message may hold: checkers made from the annotations, and their words for the documentation.

Nothing is converted on the way in: "1" is not 1, and true is not 1.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Union, get_args, get_origin

import attrs

Check = Callable[[Any], Any]
"""Gives the value as the message holds it, or raises `Wrong`."""

DEEPEST: Final = 32
"""Levels of maps and lists inside of a plain map, at most."""


class Wrong(ValueError):
    """A value that does not belong into its field, in words that follow the name of the field."""


@attrs.frozen
class Range:
    """Limits of a whole number, both included."""

    low: int
    high: int


@attrs.frozen
class Unbound:
    """A real number that may be infinite, or none at all."""


@attrs.frozen
class OneOf:
    """The words that a text is one of."""

    words: tuple[str, ...]


Count = Annotated[int, Range(0, 2**63 - 1)]
"""A whole number from 0 to 2**63 - 1: what `int` means on the wire."""

Wide = Annotated[int, Range(0, 2**64 - 1)]
"""A whole number of 64 bits without a sign."""

Index = Annotated[int, Range(-1, 2**63 - 1)]
"""A whole number from 0 to 2**63 - 1, or -1 for none."""

Real = Annotated[float, Unbound()]
"""A number of 64 bits that may be infinite or not a number; without this, `float` is finite."""

Plain = dict[str, Any]
"""A map of what msgpack knows: nothing, truth, numbers, text, bytes, lists and maps with keys of text."""


def checker(hint: Any, *, ours: bool = False) -> Check:
    """The checker of an annotation. A list becomes a tuple; of `ours`, a whole number serves as a `float` too."""
    return _checker(hint, ours)[0]


def words(hint: Any) -> str:
    """The annotation as the documentation has it."""
    return _checker(hint, False)[1]


def _checker(hint: Any, ours: bool) -> tuple[Check, str]:
    notes: Sequence[Any] = ()
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
    note = notes[0] if notes else None
    if hint is bool:
        return _flag, "bool"
    if hint is int:
        return _whole(note or Range(0, 2**63 - 1))
    if hint is float:
        real, name = (_real, "float, inf, nan") if isinstance(note, Unbound) else (_finite, "float")
        return (lambda value: real(float(value) if type(value) is int else value)) if ours else real, name
    if hint is str:
        return _text(note.words if isinstance(note, OneOf) else None)
    if hint is bytes:
        return _blob, "bytes"
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and len(inner) == 2 and inner[1] is type(None):
        check, name = _checker(inner[0], ours)
        return (lambda value: None if value is None else check(value)), f"{name} or nil"
    if origin is dict and inner == (str, Any):
        return _map, "map"
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        check, name = _checker(inner[0], ours)
        return (lambda value: tuple([check(item) for item in _list(value)])), f"list of {name}"
    if origin is tuple:
        return _row([_checker(item, ours) for item in inner])
    raise TypeError(f"the wire has no form for {hint!r}")


def _name(value: object) -> str:
    return "nil" if value is None else type(value).__name__


def _flag(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Wrong(f"is a {_name(value)}, not a bool")


def _whole(limits: Range) -> tuple[Check, str]:
    low, high = limits.low, limits.high

    def check(value: Any) -> int:
        if isinstance(value, int) and value is not True and value is not False:
            if low <= value <= high:
                return value
            raise Wrong(f"is {value if abs(value) < 2**64 else 'an int'}, outside of {low} to {high}")
        raise Wrong(f"is a {_name(value)}, not an int")

    return check, {(0, 2**64 - 1): "u64", (-1, 2**63 - 1): "int or -1"}.get((low, high), "int")


def _real(value: Any) -> float:
    if isinstance(value, float):
        return value
    raise Wrong(f"is a {_name(value)}, not a float")


def _finite(value: Any) -> float:
    if math.isfinite(_real(value)):
        return float(value)
    raise Wrong(f"is {value}, which is not finite")


def _text(choices: tuple[str, ...] | None) -> tuple[Check, str]:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise Wrong(f"is a {_name(value)}, not text")
        if choices is not None and value not in choices:
            raise Wrong(f"is {value[:40]!r}, none of {', '.join(choices)}")
        return value

    return check, "str" if choices is None else " or ".join(f'"{choice}"' for choice in choices)


def _blob(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise Wrong(f"is a {_name(value)}, not bytes")


def _list(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise Wrong(f"is a {_name(value)}, not a list")


def _row(columns: list[tuple[Check, str]]) -> tuple[Check, str]:
    checks = [check for check, _ in columns]

    def check(value: Any) -> tuple[Any, ...]:
        row = _list(value)
        if len(row) != len(checks):
            raise Wrong(f"has a row of {len(row)} items, not {len(checks)}")
        return tuple([column(item) for column, item in zip(checks, row, strict=True)])

    return check, "(" + ", ".join(name for _, name in columns) + ")"


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Wrong(f"is a {_name(value)}, not a map")
    _plain(value, DEEPEST)
    return value


def _plain(value: Any, levels: int) -> None:
    """Whether a value is one that msgpack gives back, but for tuples, which come back as lists."""
    if levels == 0:
        raise Wrong(f"is nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Wrong(f"has a {_name(key)} as a key, not text")
            _plain(item, levels - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _plain(item, levels - 1)
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise Wrong("holds a whole number of more than 64 bits")
    elif not (value is None or isinstance(value, float | str | bytes)):
        raise Wrong(f"holds a {_name(value)}")
