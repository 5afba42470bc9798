"""Signals that the supervisor gets: collected, and telling the loop that waits."""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType, TracebackType
from typing import Any

from nlpkernel.supervise.member import ASKED

#: Ctrl-Z: the processes of the run are not in the terminal's foreground, and would go on.
_PAUSE = getattr(signal, "SIGTSTP", None)


class Inbox:
    """While entered, signals are kept instead of acted on. `reader` becomes readable with each."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.pauses = 0
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def __enter__(self) -> Inbox:
        # Python allows no handler elsewhere; then nobody sends us signals either.
        if threading.current_thread() is threading.main_thread():
            numbers = (*ASKED, *(() if _PAUSE is None else (_PAUSE,)))
            for number in numbers:
                self._before[number] = signal.signal(number, self._receive)
            self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.reader.close()
        self._writer.close()

    def drain(self) -> None:
        """Take what woke the loop."""
        try:
            while self.reader.recv(64):
                pass
        except BlockingIOError:
            pass

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == _PAUSE:
            self.pauses += 1
        else:
            self.ends.append(number)
