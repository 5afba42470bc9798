"""A file of lines that survives its writer."""

from __future__ import annotations

import os
import time
from pathlib import Path


class LineFile:
    """Appends whole lines to a file. Raise OSError where that fails; the next line then begins on a new line.

    `interval`: seconds for which lines may wait in memory; 0 hands every line to the system at once.
    """

    def __init__(self, path: Path, *, interval: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(
            path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666
        )
        self._interval = interval
        self._waiting: list[str] = []
        self._flushed = time.monotonic()
        # A process that was killed, or a full disk, may have left half a line at the end.
        self._torn = self._ends_in_half_a_line()

    def append(self, line: str) -> None:
        """Add one line, newline included. Raise OSError after `close`."""
        self._waiting.append(line)
        if not self._interval or time.monotonic() - self._flushed >= self._interval:
            self.flush()

    def flush(self) -> None:
        """Hand all lines to the system."""
        self._flushed = time.monotonic()
        if not self._waiting:
            return
        data = "".join(self._waiting).encode("ascii")
        self._waiting.clear()
        if self._torn:
            data = b"\n" + data
        self._torn = True
        while data:
            data = data[os.write(self._descriptor, data) :]
        self._torn = False

    def close(self) -> None:
        """Hand over what waits, and close the file."""
        try:
            self.flush()
        finally:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _ends_in_half_a_line(self) -> bool:
        if not os.lseek(self._descriptor, 0, os.SEEK_END):
            return False
        os.lseek(self._descriptor, -1, os.SEEK_END)
        return os.read(self._descriptor, 1) != b"\n"
