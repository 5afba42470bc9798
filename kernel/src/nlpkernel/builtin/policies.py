"""Policies: who may end a run, save it, or take it back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel.components import component, hookimpl, setting
from nlpkernel.events import Logged
from nlpkernel.hookspecs.everywhere import Action, Decision

if TYPE_CHECKING:
    from nlpkernel.bus import Bus
    from nlpkernel.progress import Progress
    from nlpkernel.state import Stateful


@component
class NonFinite:
    """What to do when a loss or a gradient is not finite. The kernel adds it from `train.on_nan`."""

    action: Literal["stop", "skip", "rollback"] = setting(default="stop", help="what to do")

    @hookimpl
    def decide(self, metrics: Mapping[str, float | None]) -> Decision | None:
        """Answer when the engine found a window that is not finite (metric "non-finite": its step)."""
        step = metrics.get("non-finite")
        if step is None or self.action == "skip":
            return None
        reason = f"loss or gradient of step {int(step) + 1} is not finite"
        return Decision(Action.FAIL if self.action == "stop" else Action.ROLLBACK, reason)


@component
class EarlyStopping:
    """Stop when a metric has not become better for some evaluations in a row."""

    metric: str = setting(default="validation/loss", help="metric to watch, as `split/name`")
    better: Literal["smaller", "larger"] = setting(default="smaller", help="which way is better")
    patience: int = setting(default=3, ge=1, help="evaluations without a better value before the run stops")
    least: float = setting(default=0.0, ge=0, help="a value is better only by more than this")

    _best: float | None = attrs.field(init=False, default=None)
    _waited: int = attrs.field(init=False, default=0)

    @hookimpl
    def decide(self, metrics: Mapping[str, float | None]) -> Decision | None:
        """Count evaluations that were not better. A value that is none or NaN never is."""
        if self.metric not in metrics:
            return None
        value = metrics[self.metric]
        if value is not None and not math.isnan(value) and self._is_better(value):
            self._best, self._waited = value, 0
        else:
            self._waited += 1
        if self._waited < self.patience:
            return None
        return Decision(Action.STOP, f"{self.metric} was not better in {self._waited} evaluations")

    @hookimpl
    def component_state(self) -> Stateful:
        """Best value and patience, so that a resumed run goes on counting."""
        return self

    def state(self) -> dict[str, Any]:
        """Best value, of which metric, and evaluations waited."""
        return {"metric": self.metric, "best": self._best, "waited": self._waited}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave. Raise ValueError where that is of another metric."""
        if state["metric"] != self.metric:
            raise ValueError(f"it is of the metric {state['metric']}, and this policy watches {self.metric}")
        self._best, self._waited = state["best"], state["waited"]

    def _is_better(self, value: float) -> bool:
        if self._best is None:
            return True
        gain = self._best - value if self.better == "smaller" else value - self._best
        return gain > self.least


@component
class Budget:
    """Stop when a budget of time or tokens is used up."""

    time: float | None = setting(
        default=None, gt=0, unit="seconds", help="time of all starts of this run together"
    )
    tokens: int | None = setting(default=None, ge=1, unit="count", help="tokens seen by the model")

    _before: float = attrs.field(init=False, default=0.0)
    _start: float = attrs.field(init=False, default=0.0)

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """A budget of nothing limits nothing."""
        if self.time is None and self.tokens is None:
            yield "time", "a budget needs time or tokens"

    @hookimpl
    def subscribe(self) -> None:
        """Nothing to listen to: the time of a run begins here, and not when the plan was read."""
        self._start = time.monotonic()

    @hookimpl
    def decide(self, progress: Progress, metrics: Mapping[str, float | None]) -> Decision | None:
        """Stop at the first step beyond the budget of tokens. The clock is looked at where the log is."""
        if self.tokens is not None and progress.tokens >= self.tokens:
            return Decision(Action.STOP, f"the budget of {self.tokens} tokens is used up")
        if self.time is not None and metrics and self._used() >= self.time:
            return Decision(Action.STOP, f"the budget of {self.time:g} s is used up")
        return None

    @hookimpl
    def component_state(self) -> Stateful:
        """Time used so far, over all processes of this run."""
        return self

    def state(self) -> dict[str, Any]:
        """Seconds used by all processes so far, and which of them this is."""
        return {"clock/used": self._used(), "clock/start": self._start}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from the seconds used. A roll-back inside a process gives no time back."""
        if state["clock/start"] != self._start:
            self._before = state["clock/used"]

    def _used(self) -> float:
        return self._before + time.monotonic() - self._start


@component
class Spike:
    """Take the run back, or end it, when the loss of a step leaps above those before it.

    Going back to a version and leaving out the batches around the leap is what PaLM's training did (Chowdhery et al.,
    2022, section 5.1). Mean and variance are exponentially weighted over `history` steps. Losses are known at the log
    interval, so a leap is found there, and a version saved after it began would be taken back to: let [checkpoint] save
    at multiples of the log interval.
    """

    action: Literal["rollback", "stop"] = setting(
        default="rollback",
        help="go back to the newest version and leave the windows out, or end the run as failed",
    )
    deviations: float = setting(
        default=6.0, gt=0, help="a loss leaps when it lies so many standard deviations above the mean"
    )
    history: int = setting(default=100, ge=2, help="steps over which mean and deviation are taken")
    after: int = setting(default=100, ge=2, help="steps at the beginning that are not judged")
    skip: int = setting(default=1, ge=1, help="windows that are left out, the leap's first")

    _mean: float = attrs.field(init=False, default=0.0)
    _variance: float = attrs.field(init=False, default=0.0)
    _seen: int = attrs.field(init=False, default=0)
    _leap: tuple[int, float] | None = attrs.field(init=False, default=None)

    @hookimpl
    def subscribe(self, bus: Bus) -> None:
        """Hear of the losses."""
        bus.on(Logged, self._heard)

    def _heard(self, event: Logged) -> None:
        self._leap = None
        first = event.progress.step - event.steps
        for window, loss in enumerate(event.losses, first):
            if loss is None or not math.isfinite(loss):
                continue
            gain = loss - self._mean
            if self._seen >= self.after and gain > self.deviations * math.sqrt(self._variance):
                self._leap = window, loss
                return
            share = max(1 / (self._seen + 1), 2 / (self.history + 1))
            self._mean += share * gain
            self._variance = (1 - share) * (self._variance + share * gain * gain)
            self._seen += 1

    @hookimpl
    def decide(self, metrics: Mapping[str, float | None]) -> Decision | None:
        """Answer for the leap that was just heard of."""
        leap, self._leap = self._leap, None
        if leap is None or "non-finite" in metrics:
            return None
        window, loss = leap
        reason = f"the loss of step {window + 1} leapt to {loss:.4g} from {self._mean:.4g}"
        action = Action.ROLLBACK if self.action == "rollback" else Action.FAIL
        return Decision(action, reason, tuple(range(window, window + self.skip)))

    @hookimpl
    def component_state(self) -> Stateful:
        """Mean, variance and steps seen."""
        return self

    def state(self) -> dict[str, Any]:
        """Mean, variance and steps seen."""
        return {"mean": self._mean, "variance": self._variance, "seen": self._seen}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""
        self._mean, self._variance, self._seen = state["mean"], state["variance"], state["seen"]
