"""How often a run is started again, and after how long."""

from __future__ import annotations

import attrs

#: Seconds before the first restart, and before any.
FIRST, LONGEST = 1.0, 60.0


@attrs.define
class Restarts:
    """The budget of a run, and the back-off: each restart waits twice as long as the one before it, until the run gets
    further than it was.

    budget: restarts in all. repeated: how often in a row the last failure came in the same step.
    """

    budget: int
    first: float = FIRST
    longest: float = LONGEST
    used: int = 0
    repeated: int = 0
    _doublings: int = 0
    _furthest: int = -1
    _last: int | None = None

    @property
    def left(self) -> int:
        """How many restarts there still are."""
        return max(0, self.budget - self.used)

    def failed(self, step: int) -> float | None:
        """The run failed in `step`: seconds until it is started again, or None where the budget is used up."""
        self.repeated = self.repeated + 1 if step == self._last else 1
        self._last = step
        if step > self._furthest:
            self._furthest, self._doublings = step, 0
        if self.used >= self.budget:
            return None
        delay = min(self.first * 2.0**self._doublings, self.longest)
        self.used += 1
        self._doublings += 1
        return delay
