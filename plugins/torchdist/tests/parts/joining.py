"""Components of runs whose workers another launcher started: their pace, and what can go wrong with them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from nlpkernel import component, hookimpl, setting


@component
class Pace:
    """A step takes at least so long; the step that is done, and where it listens, are written down."""

    seconds: float = setting(default=0.0, help="of a step")
    gate: int | None = setting(default=None, help="after this step it waits for the file `go` of the run")
    child: bool = setting(default=False, help="start a child that would live on, in a session of its own")

    @hookimpl
    def subscribe(self, run):
        """Nothing to listen to."""
        if self.child:
            command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
            made = subprocess.Popen(command, start_new_session=True)
            (run.folder / f"child-{made.pid}").touch()

    @hookimpl
    def update_applied(self, run, progress):
        path = run.folder / f"step-{run.rank}"
        aside = path.with_suffix(".new")
        aside.write_text(str(progress.step))
        aside.replace(path)
        time.sleep(self.seconds)
        while progress.step == self.gate and not (run.folder / "go").exists():
            time.sleep(0.01)


@component
class Trouble:
    """In a given step of one worker: see `what`."""

    what: str = setting(help="raise, hang")
    rank: int = setting(default=1, help="of whom")
    step: int = setting(help="in which step")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def gradients_ready(self, run, stage):
        if self.what == "hang" and stage == "local" and self._due(run, run.progress.step + 1):
            time.sleep(600)

    @hookimpl
    def decide(self, run, progress):
        if self.what == "raise" and self._due(run, progress.step):
            raise ValueError("the milk is sour")

    def _due(self, run, step):
        mark = Path(run.folder) / self.what
        if run.rank != self.rank or step != self.step or mark.exists():
            return False
        mark.touch()
        return True
