"""The bridge: events and log records of a process as plain messages, and as lines that a person reads.

Everything but `StepCompleted` travels, whose values are on the device. Nothing is kept: an event that is told while
the queue is full is lost and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from nlpkernel.events import Event
from nlpkernel.progress import Progress

#: Characters of a log record that travel.
_LONGEST = 8000
#: How deep values may lie within each other.
_DEEPEST = 8
#: The events from which the supervisor learns; it knows them by these names.
STARTED, SAVED = "RunStarted", "VersionSaved"
#: Events that make no line: they come ten times a second, or as a log record as well.
SILENT = frozenset({"Working", "Notice"})

Send = Callable[[str, dict[str, Any]], None]


def event_body(event: Event) -> dict[str, Any]:
    """An event as the body of a message: its name, its time, its fields."""
    fields = {
        field.name: _plain(getattr(event, field.name))
        for field in attrs.fields(type(event))
        if field.name != "time"
    }
    return {"name": type(event).__name__, "time": event.time, "fields": fields}


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Progress):
        return value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each, depth + 1) for each in value]
    if attrs.has(type(value)):
        fields = attrs.fields(type(value))
        return {field.name: _plain(getattr(value, field.name), depth + 1) for field in fields}
    return value


class Records(logging.Handler):
    """Sends log records as messages."""

    def __init__(self, send: Send) -> None:
        super().__init__(logging.INFO)
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send one."""
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001 - a record whose arguments do not fit is told as it is
            text = f"{record.msg!r} ({type(error).__name__} while formatting it)"
        body = {"time": record.created, "level": record.levelname, "logger": record.name}
        self._send("log", {**body, "text": text[:_LONGEST]})


@contextmanager
def records_sent(send: Send) -> Iterator[None]:
    """While entered, what is logged under `nlpkernel` and Python's warnings are sent too."""
    handler = Records(send)
    loggers = [logging.getLogger("nlpkernel"), logging.getLogger("py.warnings")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def line_of(kind: str, body: Mapping[str, Any]) -> str:
    """A message as the text of a line in the log of the run. Raise KeyError where it is none that belongs there."""
    if kind == "event":
        return f"{body['name']} {' '.join(_pairs(body['fields']))}".rstrip()
    return f"{body['level']} {body['logger']}: {body['text']}"


def _pairs(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            # What is nested stands for itself: progress.step is step, metrics.loss is loss.
            yield from _pairs(value)
        elif isinstance(value, float):
            yield f"{name}={value:.6g}"
        elif isinstance(value, str) and (not value or any(map(str.isspace, value))):
            yield f"{name}={value!r}"
        else:
            yield f"{name}={value}"
