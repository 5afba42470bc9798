"""SIGINT, SIGTERM, SIGUSR1: the first ends the run after its step, saved; the second ends the process at once.

Before the first step there is nothing to save, and the first signal ends what goes on at once. A process that is no
worker has no step of its own, and ends when the supervisor says so.
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from nlpkernel.supervise.post import Post

#: Windows has no SIGUSR1; where it is, batch systems send it ahead of the end of a job's time.
_CAUGHT = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))


class _Caught(ABC):
    """While entered, signals go to `_signalled`. Does nothing outside the main thread, where Python allows no handler.
    A child that is forked meanwhile has none of it: there they do what they did before."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> Self:
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
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._signalled(number)

    @abstractmethod
    def _signalled(self, number: int) -> None:
        """A signal has come to this process."""


class Signals(_Caught):
    """While entered, remembers the first signal in `received`, or raises while not `armed`. Does nothing outside the
    main thread."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.received: int | None = None

    @property
    def name(self) -> str:
        """Name of the signal received."""
        return signal.Signals(self.received).name if self.received is not None else ""

    def _signalled(self, number: int) -> None:
        if self.received is not None:
            os._exit(128 + number)
        self.received = number
        if not self.armed:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


class Dismissal(_Caught):
    """While entered, the supervisor's word to end raises SystemExit in the main thread, once, inside `until`. A
    signal from anybody else asks the supervisor for the end of the run, for which workers may need this process: batch
    systems send signals to all processes of a job. Does nothing outside the main thread."""

    def __init__(self, post: Post) -> None:
        super().__init__()
        self._post = post
        self._awaited = False

    def until(self, work: Callable[[], object]) -> None:
        """Do `work`, which the supervisor's word ends; there is none left where it has come already."""
        self._awaited = True
        try:
            if not self._post.dismissed:
                work()
        except SystemExit:
            # Its own exits are its own.
            if not self._post.dismissed:
                raise
        finally:
            self._awaited = False

    def _signalled(self, number: int) -> None:
        if not self._post.dismissed:
            self._post.asks(number)
        elif self._awaited:
            self._awaited = False
            raise SystemExit(0)
