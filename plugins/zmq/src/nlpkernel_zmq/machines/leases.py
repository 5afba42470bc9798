"""Which worker computes which window (`async`, `ssp`): each is given to one, and to another if that one is lost.

`staleness` bounds how many windows a worker may be ahead of the slowest that is at work (Ho et al., "More effective
distributed ML via a stale synchronous parallel parameter server", 2013, with windows for clocks): a lease that would
break it waits.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.define
class Leases:
    """The windows of a run. next: the first that nobody has. staleness: None for no bound. until: windows from this one
    on are held back until what is before them is applied; None: none is.

    The clock of a worker is the number of windows that it has done, or that the slowest had done when it came in.
    """

    staleness: int | None = None
    next: int = 0
    until: int | None = None
    clocks: dict[int, int] = attrs.field(factory=dict)
    held: dict[int, int] = attrs.field(factory=dict)
    _again: list[int] = attrs.field(factory=list)

    def restore(self, floor: int, applied: Iterable[int]) -> None:
        """After the coordinator was started again: all windows before `floor` have been applied, and these. What lies
        between is done again unless its holder says that it has it."""
        done = set(applied)
        self.next = max(done, default=floor - 1) + 1
        self._again = [window for window in range(floor, self.next) if window not in done]

    def holds(self, worker: int, window: int) -> None:
        """A worker says that it has a window, which a coordinator that was started again does not know."""
        if window in self._again:
            self._again.remove(window)
        elif window >= self.next:
            self._again += range(self.next, window)
            self.next = window + 1
        else:
            # It has been applied, or is somebody else's by now; what the worker pushes counts once in any case.
            return
        self.held[worker] = window

    def join(self, worker: int) -> None:
        """A worker comes in."""
        if worker not in self.clocks:
            self.clocks[worker] = min(self.clocks.values(), default=0)

    def leave(self, worker: int) -> int | None:
        """A worker is gone; the window that somebody else has to do, if it had one."""
        self.clocks.pop(worker, None)
        window = self.held.pop(worker, None)
        if window is not None:
            self._again.append(window)
            self._again.sort()
        return window

    def claim(self, worker: int, end: int) -> int | None:
        """The window that a worker is to do now, of those before `end`: -1: there is none left; None: it has to wait.
        Asked again, it gets the same."""
        if worker in self.held:
            return self.held[worker]
        if self._again:
            self.held[worker] = self._again.pop(0)
            return self.held[worker]
        if self.next >= end:
            # What somebody else is at may come back.
            return -1 if not self.held else None
        if self.until is not None and self.next >= self.until:
            return None
        if self.is_held_back(worker):
            return None
        self.held[worker] = self.next
        self.next += 1
        return self.held[worker]

    def ahead(self, worker: int) -> int:
        """By how many windows a worker is ahead of the slowest."""
        return self.clocks[worker] - min(self.clocks.values())

    def is_held_back(self, worker: int) -> bool:
        """Whether a worker is too far ahead of the slowest to begin a window."""
        return self.staleness is not None and self.ahead(worker) > self.staleness

    def slowest(self) -> set[int]:
        """The workers that have done the fewest windows."""
        least = min(self.clocks.values(), default=0)
        return {worker for worker, clock in self.clocks.items() if clock == least}

    def done(self, worker: int, window: int) -> None:
        """A window has been applied; whoever held it may have another."""
        if self.held.get(worker) == window:
            del self.held[worker]
            self.clocks[worker] += 1

    def settled(self, window: int) -> None:
        """A window has been applied, whoever pushed it: nobody has to do it any more."""
        if window in self._again:
            self._again.remove(window)
        for worker in [worker for worker, held in self.held.items() if held == window]:
            self.done(worker, window)

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way."""
        return not self.held and not self._again
