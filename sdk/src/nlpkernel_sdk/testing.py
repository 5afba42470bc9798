"""What a test of a component needs: a run without an engine, a clock that is set by hand, a book of events, and a store
and a transport that fail when they are told to.

Tiny plans are in `nlpkernel_sdk.plans`; the faulty store is `nlpkernel_sdk.keeping.MemoryStore`, which a plan names as
`checkpoint = { use = "memory", fail_at = [1] }`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from unittest import mock

from nlpkernel.context import Run
from nlpkernel.events import Event
from nlpkernel.plan.train import Train
from nlpkernel_sdk.plans import record, tiny_plan, tiny_values

if TYPE_CHECKING:
    from nlpkernel_sdk.keeping import MemoryStore

__all__ = [
    "FakeClock",
    "FaultyPipe",
    "Recorder",
    "faulty_store",
    "make_run",
    "record",
    "tiny_plan",
    "tiny_values",
]

_E = TypeVar("_E", bound=Event)
Fault = Literal["drop", "twice", "late", "damage", "cut"]


def make_run(folder: Path, *, name: str = "test", **train: Any) -> Run:
    """A run of its own, without an engine: `make_run(tmp_path).ask(component, "create_schedule", updates=10)`. `train`
    are settings of [train]. The cache is a folder beside the run's."""
    return Run(name=name, folder=folder, cache=folder.parent / "cache", train=Train(**train))


class Recorder:
    """A book of the events of a bus: `Recorder(run.bus)`, then `run.bus.publish(...)`."""

    def __init__(self, bus: Any) -> None:
        self.events: list[Event] = []
        bus.on(Event, self.events.append)

    def of(self, kind: type[_E]) -> list[_E]:
        """Those of one class, in order."""
        return [event for event in self.events if isinstance(event, kind)]


class FakeClock:
    """A clock that moves by hand. Inside `with clock.set():`, `time.time`, `time.monotonic`, `time.perf_counter` and
    `time.sleep` go by it, in the whole process."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def _read(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """So much later. Raise ValueError for a step back, which no monotonic clock makes."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back by {-seconds:g} s")
        self.now += seconds

    @contextmanager
    def set(self) -> Iterator[FakeClock]:
        """Let the process go by this clock."""

        def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.advance(seconds)

        with ExitStack() as stack:
            for name in ("time", "monotonic", "perf_counter"):
                stack.enter_context(mock.patch.object(time, name, self._read))
            stack.enter_context(mock.patch.object(time, "sleep", sleep))
            yield self


def faulty_store(folder: Path, *, fail_at: Sequence[int] = (), slow: float = 0.0) -> MemoryStore:
    """A store in memory whose saves of these numbers (from 0) fail, and take so many seconds."""
    from nlpkernel_sdk.keeping import MemoryStore

    return MemoryStore(folder, fail_at, slow)


class FaultyPipe:
    """One direction of a transport of messages, with faults by the number of the message (from 0).

    "drop": it is lost. "twice": it comes twice. "late": it comes after the next one. "damage": its first byte is
    another one. "cut": sending it raises ConnectionResetError, and so does whatever follows.
    """

    def __init__(self, faults: Mapping[int, Fault] | None = None) -> None:
        self.faults = dict(faults or {})
        self.sent = 0
        self._waiting: deque[bytes] = deque()
        self._late: list[bytes] = []
        self._broken = False

    def send(self, message: bytes) -> None:
        """Send one. Raise ConnectionResetError once the pipe is cut."""
        fault = self.faults.get(self.sent)
        self.sent += 1
        if self._broken or fault == "cut":
            self._broken = True
            raise ConnectionResetError("the pipe is cut (made up)")
        if fault == "late":
            self._late.append(message)
            return
        if fault == "damage":
            message = bytes([(message[0] if message else 0) ^ 0xFF]) + message[1:]
        if fault != "drop":
            self._waiting += [message] * (2 if fault == "twice" else 1)
        self._waiting += self._late
        self._late.clear()

    def receive(self) -> bytes | None:
        """The next message; None where there is none yet. Raise ConnectionResetError at the end of a pipe that is
        cut."""
        if self._waiting:
            return self._waiting.popleft()
        if self._broken:
            raise ConnectionResetError("the pipe is cut (made up)")
        return None
