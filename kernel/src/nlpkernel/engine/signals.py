"""SIGINT, SIGTERM, SIGUSR1: the first ends the run after its step, saved; the second ends the process at once.

Before the first step there is nothing to save, and the first signal ends what goes on at once.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

#: Windows has no SIGUSR1; where it is, batch systems send it ahead of the end of a job's time.
_CAUGHT = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))


class Signals:
    """While entered, remembers the first signal in `received`, or raises while not `armed`. Does nothing outside the
    main thread, where Python allows no handler."""

    def __init__(self) -> None:
        self.armed = False
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    @property
    def name(self) -> str:
        """Name of the signal received."""
        return signal.Signals(self.received).name if self.received is not None else ""

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in _CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A child that was forked while a run goes on: it has no step to finish.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self.received is not None:
            os._exit(128 + number)
        self.received = number
        if not self.armed:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
