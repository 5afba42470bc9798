"""Events to lines of JSON.

JSON has no NaN and no infinity. They are written as the strings "NaN", "Infinity" and "-Infinity" (as in the JSON
mapping of Protocol Buffers), which Python's `float`, JavaScript's `Number` and most other readers turn back into the
number; a value that was not computed is null. So every line is valid JSON, and no log hides a NaN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

import attrs

from nlpkernel.events import Event
from nlpkernel.progress import Progress

#: What is no number in JSON, and its text.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def line_of(kind: type[Event]) -> Callable[[Event], str]:
    """A function that turns events of the class `kind` into a line: an object with the class's name as "event" and
    the fields under their names, in ASCII, with the newline."""
    names = tuple(field.name for field in attrs.fields(kind))

    def line(event: Event) -> str:
        values: dict[str, Any] = {"event": kind.__name__}
        for name in names:
            value = getattr(event, name)
            values[name] = value._asdict() if type(value) is Progress else value
        try:
            return f"{_strict.encode(values)}\n"
        except ValueError:
            # Some value is not finite: rare enough to be looked for only then.
            return f"{_strict.encode(_spelled(values))}\n"

    return line


def _plain(value: Any) -> Any:
    """What json does not know, as something that it knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        # Tensors and arrays: reading one waits for its device.
        return value.tolist()
    if attrs.has(type(value)):
        return {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__} cannot be written as JSON")


def _spelled(value: Any) -> Any:
    """A copy in which numbers that are not finite are spelled out."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return _each(value)
    return _spelled(_plain(value))


def _each(values: Iterable[Any]) -> list[Any]:
    return [_spelled(value) for value in values]


_strict = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain)
