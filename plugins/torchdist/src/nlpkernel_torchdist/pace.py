"""Who keeps the others waiting: how long each worker takes from one exchange until it meets the others again.

Step times say nothing of it: in an exchange all wait for the slowest, so all steps take as long. Times are those of
the host; what a device still has in its queue is not seen. Workers of one tensor or pipe axis meet within the forward
pass, so that among them the slow one does not stand out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

#: A worker is slow that takes so many times as long as the others do, and so many seconds more.
FACTOR, LEAST = 1.5, 0.02


class Pace:
    """One worker's own time. `arrive` before the last backward pass of a window, `leave` after its update."""

    def __init__(self) -> None:
        self._left = perf_counter()
        self._arrived = 0.0
        self._own = 0.0
        self._windows = 0
        self._told: int | None = None

    def timed(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model, after whose forward this worker arrives."""

        def forward(**inputs: Any) -> Any:
            outputs = model(**inputs)
            self._arrived = perf_counter()
            return outputs

        return forward

    def arrive(self) -> None:
        """It is about to meet the others, for the last time in this window."""
        self._arrived = perf_counter()

    def leave(self) -> None:
        """The update is done."""
        self._own += self._arrived - self._left
        self._windows += 1
        self._left = perf_counter()

    def rest(self) -> None:
        """What lies between two windows (an evaluation, a save) is nobody's."""
        self._left = perf_counter()

    def take(self) -> float:
        """Mean seconds of a window since this was asked last; 0 where there was none."""
        mean = self._own / self._windows if self._windows else 0.0
        self._own, self._windows = 0.0, 0
        return mean

    def judge(self, seconds: Sequence[float]) -> str | None:
        """A sentence about the slowest of all workers, where it keeps the others waiting and this was not said of it
        yet."""
        slowest = max(range(len(seconds)), key=seconds.__getitem__)
        others = median([each for rank, each in enumerate(seconds) if rank != slowest])
        if seconds[slowest] < FACTOR * others or seconds[slowest] - others < LEAST:
            self._told = None
            return None
        if self._told == slowest:
            return None
        self._told = slowest
        return (
            f"worker {slowest} keeps the others waiting: it takes {seconds[slowest] * 1e3:.0f} ms of a step until it "
            f"meets them, and they take {others * 1e3:.0f} ms"
        )
