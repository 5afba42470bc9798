"""The rate that falls when a metric stops getting better. Plain arithmetic: no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from nlpkernel.errors import TrainingError, fail


@attrs.define(kw_only=True, eq=False)
class Falling:
    """A schedule that lowers its level when a metric was not better for more than `patience` evaluations.

    The same rule as torch's ReduceLROnPlateau, also for a metric below 0. No value, or one that is not finite, is never
    better. After each fall, `cooldown` evaluations do not count. The level never goes below `minimum`.
    """

    warmup: int
    metric: str
    mode: Literal["min", "max"]
    lower: float
    patience: int
    threshold: float
    relative: bool
    cooldown: int
    minimum: float
    _level: float = attrs.field(default=1.0, init=False)
    _best: float | None = attrs.field(default=None, init=False)
    _bad: int = attrs.field(default=0, init=False)
    _wait: int = attrs.field(default=0, init=False)

    def factor(self, update: int) -> float:
        """The level, times (update + 1) / warmup during the warm-up."""
        return self._level * min(1.0, (update + 1) / self.warmup) if self.warmup else self._level

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Take an evaluation into account.

        Metrics of another split say nothing. Raises TrainingError OPT005 where the metric's own split was evaluated
        and the metric is not among its values.
        """
        if self.metric not in metrics:
            split = self.metric.partition("/")[0]
            known = [name for name in metrics if name.startswith(f"{split}/")]
            if known:
                message = f"the evaluation has no metric {self.metric!r}"
                raise fail(TrainingError, "OPT005", message, hint=f"it has {', '.join(sorted(known))}")
            return
        value = metrics[self.metric]
        if value is not None and self._better(value):
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._wait:
            self._wait -= 1
            self._bad = 0
        if self._bad > self.patience:
            self._level = max(self._level * self.lower, self.minimum)
            self._bad, self._wait = 0, self.cooldown

    def state(self) -> Mapping[str, Any]:
        """Level, best value, and both counters."""
        return {"level": self._level, "best": self._best, "bad": self._bad, "wait": self._wait}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave. Raise ValueError where it is another schedule's."""
        if set(state) != {"level", "best", "bad", "wait"}:
            raise ValueError(f"not the state of a plateau schedule: {', '.join(sorted(state)) or 'empty'}")
        self._level, self._best = state["level"], state["best"]
        self._bad, self._wait = state["bad"], state["wait"]

    def _better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self._best is None:
            return True
        sign = -1.0 if self.mode == "min" else 1.0
        if self.relative:
            bound = self._best * (1 + sign * math.copysign(self.threshold, self._best))
        else:
            bound = self._best + sign * self.threshold
        return sign * value > sign * bound
