"""One log of a run: what all its processes told, in the order of time."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

#: Seconds that a line waits for earlier ones of other processes.
HOLD = 0.3


class _Line(NamedTuple):
    key: float
    order: int
    time: float
    sender: str
    number: int
    text: str
    arrived: float


class Journal:
    """Appends lines to a file: time, sender, the sender's own number, text.

    Lines of one sender stay in its order, whatever its clock does; lines of several are merged by time, as far as they
    arrive within `HOLD` of each other.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._clock = clock
        self._waiting: list[_Line] = []
        self._newest: dict[str, float] = {}
        self._count = 0
        self._own = 0

    def add(self, sender: str, number: int, time: float, text: str) -> None:
        """A line of a process."""
        key = max(time, self._newest.get(sender, time))
        self._newest[sender] = key
        self._count += 1
        heapq.heappush(self._waiting, _Line(key, self._count, time, sender, number, text, self._clock()))

    def note(self, text: str) -> None:
        """A line of the supervisor itself."""
        self.add("supervisor", self._own, time.time(), text)
        self._own += 1

    def write(self, *, everything: bool = False) -> None:
        """Write what waited long enough, or everything."""
        due = self._clock() - HOLD
        written = False
        while self._waiting and (everything or self._waiting[0].arrived <= due):
            line = heapq.heappop(self._waiting)
            at = datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds")
            text = line.text.replace("\n", "\n    ")
            self._file.write(f"{at.replace('+00:00', 'Z')} {line.sender} #{line.number} {text}\n")
            written = True
        if written:
            self._file.flush()

    def close(self) -> None:
        """Write all and close the file."""
        self.write(everything=True)
        self._file.close()
