"""A component that makes steps take a while, so that a process that was killed is back before the run is over."""

from __future__ import annotations

import time

from nlpkernel import component, hookimpl, setting


@component
class Slow:
    """Sleeps after each update."""

    seconds: float = setting(default=0.03, ge=0, help="how long")

    @hookimpl
    def subscribe(self, run, bus):
        """It wants no events."""

    @hookimpl
    def update_applied(self, run, progress, applied):
        """Sleep."""
        time.sleep(self.seconds)
