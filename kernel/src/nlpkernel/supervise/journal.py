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
    arrive within `HOLD` of each other. A disk that is full ends no run: lines that cannot be written are lost, which
    `say` tells once, and counted where lines can be written again.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        # Without a buffer: what failed once must not come again with the next line.
        self._file = path.open("ab", buffering=0)
        self._clock, self._say = clock, say
        self._lost = 0
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
        lines = []
        while self._waiting and (everything or self._waiting[0].arrived <= due):
            line = heapq.heappop(self._waiting)
            at = datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds")
            text = line.text.replace("\n", "\n    ")
            lines.append(f"{at.replace('+00:00', 'Z')} {line.sender} #{line.number} {text}\n")
        if not lines:
            return
        if self._lost:
            lines.insert(0, f"    {self._lost} lines are missing here: the log could not be written\n")
        try:
            self._file.write("".join(lines).encode("utf-8", errors="backslashreplace"))
        except OSError as error:
            if not self._lost:
                self._say(f"the log {self._file.name} cannot be written: {error.strerror}; the run goes on")
            self._lost += len(lines)
        else:
            self._lost = 0

    def close(self) -> None:
        """Write all and close the file."""
        self.write(everything=True)
        self._file.close()
