"""A component whose process is killed once, in the middle of a run."""

from __future__ import annotations

import os
import signal

from nlpkernel import component, hookimpl, setting


@component
class Dying:
    """One worker is killed after a step, the first time that it gets there."""

    rank: int = setting(default=1, help="which worker")
    step: int = setting(help="after which step")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def update_applied(self, run, progress):
        if run.rank != self.rank or progress.step != self.step:
            return
        mark = run.folder / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
