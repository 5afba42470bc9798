"""A component that writes down what it is told of a run, where no fault reaches."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

from nlpkernel import component, hookimpl
from nlpkernel.events import Evaluated, RunStarted, StepCompleted, VersionFailed, VersionSaved


def exact(value: float | None) -> str | None:
    return None if value is None else float(value).hex()


@component
class Onlooker:
    """Appends to the file that FAULTS_WITNESS names: a JSON list a line, each in one write. Floats are in hexadecimal.

    Where FAULTS_TRAPS names a file, its first line is taken away, and what it says befalls this process from now on: so
    a process that was not forked gets its faults, and one that is started again gets others. Each of several workers
    has files of its own, with its rank at the end of their names.
    """

    @hookimpl
    def subscribe(self, run, bus):
        rank = f"-{run.rank}" if run.world > 1 else ""
        if "FAULTS_TRAPS" in os.environ:
            self.lay(Path(os.environ["FAULTS_TRAPS"] + rank))
        path = os.environ["FAULTS_WITNESS"] + rank
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        bus.on(RunStarted, lambda event: self.tell("begins", event.start.step))
        bus.on(StepCompleted, self.step)
        bus.on(Evaluated, self.evaluated)
        bus.on(VersionSaved, lambda event: self.tell("saved", event.progress.step, event.version))
        bus.on(VersionFailed, lambda event: self.tell("failed", event.progress.step, event.error))

    def lay(self, file):
        first, _, rest = file.read_text().partition("\n")
        file.write_text(rest)
        runpy.run_path(str(Path(__file__).with_name("traps.py")))["install"](json.loads(first or "[]"))

    def step(self, event):
        losses = {name: exact(float(value) / event.totals[name]) for name, value in event.sums.items()}
        self.tell("step", event.progress.step, {**losses, "norm": exact(event.norm)})

    def evaluated(self, event):
        metrics = {name: exact(value) for name, value in event.metrics.items()}
        self.tell("evaluated", event.progress.step, {event.split: metrics})

    def tell(self, *what):
        os.write(self.file, json.dumps(what).encode() + b"\n")

    @hookimpl
    def close(self):
        os.close(self.file)


@component
class Witness(Onlooker):
    """The same, with a point between backward and update. Many workers exchange otherwise where somebody is there."""

    @hookimpl
    def gradients_ready(self, named):
        """Only to be asked."""

    @hookimpl
    def update_applied(self, progress):
        """A point after the update."""
