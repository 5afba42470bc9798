"""A worker's process, started and kept by the process that is its hand: what it writes, how it ends. Light."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

from nlpkernel.supervise import ending, entering

#: Lines that wait to be fetched; then the worker waits, as it does for any reader.
_LINES = 10_000
#: Seconds for the last lines, where somebody else holds the other end of the pipe.
_LAST = 2.0

#: A line, and whether it is of standard output or of standard error.
Line = tuple[str, str]


class Keeper:
    """A process in a session of its own. It ends when this process does (Linux: the kernel sees to that)."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """Start it. Raise OSError or ValueError where that fails."""
        self._lines: deque[Line] = deque()
        self._change = threading.Condition()
        self._code: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | ValueError | None = None
        started = threading.Event()
        # Linux counts the thread that forked as the parent, whose end is the child's: this one waits for it.
        thread = threading.Thread(
            target=self._keep,
            args=(command, environment, folder, started),
            name="nlpkernel-keeper",
            daemon=True,
        )
        thread.start()
        started.wait()
        if self._error is not None:
            raise self._error

    def read(self, seconds: float) -> tuple[list[Line], int | None]:
        """The lines since the last call, waited for up to so many seconds, and the exit code (negative: the signal)
        after the last of them."""
        with self._change:
            self._change.wait_for(lambda: self._lines or self._code is not None, seconds)
            lines = list(self._lines)
            self._lines.clear()
            self._change.notify_all()
            return lines, self._code

    def signal(self, number: int) -> None:
        """Send the process, and it alone, a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def end(self) -> None:
        """End it and its group: SIGTERM, a second, SIGKILL."""
        if self._process is not None and self._code is None:
            ending.end([self._process.pid], None)

    def _keep(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str, started: threading.Event
    ) -> None:
        if hasattr(signal, "pthread_sigmask"):
            # Ray blocks SIGINT in its processes, and a child would inherit that.
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", entering.__file__, str(os.getpid()), *command],
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._error = error
            started.set()
            return
        self._process = process
        started.set()
        readers = [
            threading.Thread(target=self._drain, args=(name, pipe), daemon=True)
            for name, pipe in (("out", process.stdout), ("err", process.stderr))
        ]
        for reader in readers:
            reader.start()
        code = process.wait()
        ending.end([process.pid], None)
        for reader in readers:
            reader.join(_LAST)
        with self._change:
            self._code = code
            self._change.notify_all()

    def _drain(self, name: str, pipe: IO[bytes]) -> None:
        with pipe, contextlib.suppress(ValueError):
            for line in pipe:
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                with self._change:
                    self._change.wait_for(lambda: len(self._lines) < _LINES)
                    self._lines.append((name, text))
                    self._change.notify_all()
