"""The next windows, made while this one is trained on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_T = TypeVar("_T")
#: How many windows are made ahead: one that takes longer than a step is caught up with during the next.
_DEPTH = 2


class WindowsAhead(Generic[_T]):
    """Makes windows by `make`, one at a time: in a thread what was begun, and in place what was not."""

    def __init__(self, make: Callable[[int], _T]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nlpkernel-text-ahead")
        self._begun: dict[int, Future[_T]] = {}

    def take(self, step: int) -> _T:
        """Window `step`. What went wrong with it is raised here, also where it was made in the thread."""
        future = self._begun.pop(step, None)
        if future is not None:
            return future.result()
        self.settle()
        return self._make(step)

    def begin(self, step: int) -> None:
        """Begin with window `step` and those after it, as far as that is not done."""
        steps = range(step, step + _DEPTH)
        for number in self._begun.keys() - steps:
            # The run stands elsewhere now.
            self._begun.pop(number).cancel()
        for number in steps:
            if number not in self._begun:
                self._begun[number] = self._thread.submit(self._make, number)

    def settle(self) -> None:
        """Wait until nothing is being made."""
        self._thread.submit(bool).result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)
