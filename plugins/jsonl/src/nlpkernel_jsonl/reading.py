"""Event files read back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any


def read_events(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The events of a file, in order: a dictionary each, with the event's class name as "event" and its fields.

    In fields that hold numbers, "NaN", "Infinity" and "-Infinity" come back as floats. Half a line, as a killed
    process leaves it, comes out as `{"event": "Torn", "line": number, "text": what is there}`; so does any other line
    that is no event. A file that is still being written to can be read. Raise OSError.
    """
    from nlpkernel_jsonl.encoding import NOT_FINITE

    numbers = _number_fields()

    def restored(value: Any) -> Any:
        if isinstance(value, str):
            return NOT_FINITE.get(value, value)
        if isinstance(value, dict):
            return {key: restored(item) for key, item in value.items()}
        return value

    # Only a newline ends a line: others are characters of a text.
    with open(path, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict) or "event" not in event:
                yield {"event": "Torn", "line": number, "text": line.rstrip("\n")}
                continue
            for name in numbers.get(event["event"], ()):
                if name in event:
                    event[name] = restored(event[name])
            yield event


def _number_fields() -> dict[str, tuple[str, ...]]:
    """For each class of events that is defined, the fields that hold numbers, alone or in a mapping."""
    import attrs

    from nlpkernel_jsonl.kinds import kinds

    return {
        kind.__name__: tuple(
            field.name
            for field in attrs.fields(kind)
            if any(word in str(field.type) for word in ("float", "Tensor", "Progress"))
        )
        for kind in kinds()
    }
