"""Where a run stands, kept from its events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import attrs

from nlpkernel.events import Evaluated, Logged, RunStarted, WindowSkipped
from nlpkernel.progress import Progress


@attrs.define(eq=False)
class Standing:
    """The newest of everything that a view shows. `steps` and `seconds` are of this process alone, from its first step
    on. Spans are measured by `clock`, which nobody sets, unlike the clock of the events: `began` is when the run was
    taken up, `logged_at` when the newest log came."""

    started: RunStarted | None = None
    logged: Logged | None = None
    evaluated: Evaluated | None = None
    best: Evaluated | None = None
    skipped: Counter[str] = attrs.field(factory=Counter)
    steps: int = 0
    seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    began: float = 0.0
    logged_at: float = 0.0
    _since: float = 0.0

    def start(self, event: RunStarted) -> None:
        """The first step comes next."""
        self.started = event
        self.began = self._since = self.clock()

    def log(self, event: Logged) -> None:
        """An interval ended."""
        self.logged = event
        self.steps += event.steps
        self.logged_at = self.clock()
        if self.started is not None:
            self.seconds = self.logged_at - self._since

    def evaluate(self, event: Evaluated) -> None:
        """A split was evaluated."""
        self.evaluated = event
        if not self.steps:
            # Done once, before the first step: no measure of what is to come.
            self._since = self.clock()
        if event.best:
            self.best = event

    def skip(self, event: WindowSkipped) -> None:
        """A window changed nothing."""
        self.skipped[event.reason] += 1

    @property
    def progress(self) -> Progress:
        """How far the run is, as far as anybody told."""
        if self.logged is not None:
            return self.logged.progress
        return self.started.start if self.started is not None else Progress()

    @property
    def total(self) -> int | None:
        """Steps of the whole run."""
        return self.started.steps if self.started is not None else None

    @property
    def epochs(self) -> float | None:
        """Epochs of the whole run."""
        if self.started is None or not self.started.steps_per_epoch:
            return None
        return self.started.steps / self.started.steps_per_epoch

    @property
    def left(self) -> float | None:
        """Seconds to the end as of the newest log, from the pace of this process with its evaluations and saves;
        None before the first log."""
        if self.total is None or not self.steps or self.seconds <= 0:
            return None
        return self.seconds / self.steps * max(self.total - self.progress.step, 0)
