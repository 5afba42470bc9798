"""What a run remembers beside its state: the newest metrics, the best value, and how it came here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class Memory:
    """Newest metrics ("validation/loss"), the best main value and its step, windows that are left out from now on and
    for what, and why a policy ended the run.

    main: the metric that "best" is judged by, and "min" or "max".
    """

    def __init__(self, main: tuple[str, str]) -> None:
        self.main = (f"validation/{main[0]}", main[1])
        self.metrics: dict[str, float | None] = {}
        self.best: float | None = None
        self.best_step: int | None = None
        self.avoid: dict[int, str] = {}
        self.ended: str | None = None

    def note(self, metrics: Mapping[str, float | None], step: int) -> bool:
        """Take in an evaluation; tell whether it is the best so far. What is not finite never is; a tie keeps the
        earlier."""
        self.metrics.update(metrics)
        value = metrics.get(self.main[0])
        if value is None or not math.isfinite(value):
            return False
        if self.best is not None and not (value < self.best if self.main[1] == "min" else value > self.best):
            return False
        self.best, self.best_step = value, step
        return True

    def state(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "metrics": self.metrics,
            "best": self.best,
            "best_step": self.best_step,
            "avoid": [[window, reason] for window, reason in sorted(self.avoid.items())],
            "ended": self.ended,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""
        self.metrics = dict(state["metrics"])
        self.best, self.best_step = state["best"], state["best_step"]
        self.avoid, self.ended = dict(state["avoid"]), state["ended"]
