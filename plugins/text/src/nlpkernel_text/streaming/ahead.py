"""A sequence that a thread works out ahead of whoever takes it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

import attrs

_T = TypeVar("_T")


@attrs.frozen
class _Failed:
    error: BaseException


class Ahead(Generic[_T]):
    """Takes from an endless iterator in a thread, `most` elements ahead; with 0, when they are asked for. An error
    comes out where the element would have come."""

    def __init__(self, source: Iterator[_T], most: int) -> None:
        self._source = source
        self._queue: queue.Queue[_T | _Failed] = queue.Queue(max(1, most))
        self._ended = threading.Event()
        #: What the thread ended with: whoever asks again is told again.
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="nlpkernel-text-ahead", daemon=True)
        self._threaded = most > 0
        if self._threaded:
            self._thread.start()

    def take(self) -> _T:
        """The next element."""
        if not self._threaded:
            return next(self._source)
        if self._failed is not None:
            raise self._failed
        found = self._queue.get()
        if isinstance(found, _Failed):
            self._failed = found.error
            raise found.error
        return found

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._threaded:
            while self._thread.is_alive():
                # One that waits for room looks again.
                with_room = not self._queue.empty()
                if with_room:
                    self._queue.get_nowait()
                self._thread.join(0.01)

    def _work(self) -> None:
        try:
            for element in self._source:
                self._queue.put(element)
                if self._ended.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised by whoever takes the element
            self._queue.put(_Failed(error))
