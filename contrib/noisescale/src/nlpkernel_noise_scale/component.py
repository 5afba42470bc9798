"""The component, as a plan sees it. Light: torch is imported when a run begins."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel.events import Logged, RunEnded, RunStarted
from nlpkernel_noise_scale.events import NoiseScaleEstimated

if TYPE_CHECKING:
    from torch import Tensor

    from nlpkernel.bus import Bus
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts, Stage
    from nlpkernel.hookspecs.model import Model
    from nlpkernel.state import Stateful

_NAME = "noise-scale"
_OWNER = "nlpkernel-plugin-noise-scale"


@component
class NoiseScale:
    """The gradient noise scale (McCandlish et al., 2018): about how many samples of a batch are worth their while.

    It changes nothing. At each log it tells the event NoiseScaleEstimated, and at the end what it has found.
    """

    compare: Literal["auto", "workers", "windows"] = setting(
        default="auto",
        help="gradients that are compared: of a worker's share and of all; of a window and of the next; auto: workers "
        "where there are several",
    )
    decay: float = setting(
        default=0.99, ge=0, lt=1, help="what the running means of noise and signal keep of themselves"
    )

    _means: Any = attrs.field(init=False, default=None)
    _how: str = attrs.field(init=False, default="")
    #: Of the window at hand: squared norm and size of this worker's share, and the size of the whole.
    _share: Any = attrs.field(init=False, default=None)
    _batch: float = attrs.field(init=False, default=0.0)

    @hookimpl
    def misfits(self, facts: Facts) -> Iterator[tuple[str, str]]:
        """What is divided among workers."""
        if facts.parameter_parts != 1 or facts.optimizer_parts != 1:
            yield (
                "compare",
                "a norm is of whole gradients, and this layout may divide them: it would take an exchange between "
                "workers, which is not for who only looks on",
            )

    @hookimpl
    def transform_model(self, model: Model, run: Run) -> Model:
        """The model stays. What is compared is settled. Raise PlanError (NSC001) where that is not there."""
        if run.group is None:
            return model  # A version is opened; nothing is trained.
        several = run.group.axes["data"].size > 1
        if self.compare == "workers" and not several:
            raise fail(
                PlanError,
                "NSC001",
                "there is one data worker, so that its share of a window is the window",
                owner=_OWNER,
                hint='write compare = "windows"',
            )
        self._how = ("workers" if several else "windows") if self.compare == "auto" else self.compare
        return model

    @hookimpl
    def subscribe(self, run: Run, bus: Bus) -> None:
        """Hear of the beginning, of each log, and of the end."""
        bus.on(RunStarted, lambda event: self._started(run, event))
        bus.on(Logged, lambda event: self._logged(run, event))
        bus.on(RunEnded, lambda event: self._ended(run))

    @hookimpl
    def component_state(self) -> Stateful:
        """The running means, so that a resumed run goes on with them."""
        from nlpkernel_noise_scale.estimate import Means

        self._means = Means(self.decay)
        state: Stateful = self._means
        return state

    @hookimpl
    def gradients_ready(self, run: Run, named: Sequence[tuple[str, Tensor]], stage: Stage) -> None:
        """Take norms or copies of the first worker's gradients; nothing is read on the host."""
        if run.rank != 0 or not self._how or not named:
            return
        from nlpkernel_noise_scale import estimate

        if stage == "local":
            part, self._batch, factor = self._sizes(run)
            if self._how == "workers":
                whole = 0 < part < self._batch
                self._share = (estimate.square(named) * factor**2, part) if whole else None
        elif self._how == "windows":
            self._means.pair(named, self._batch)
        elif self._share is not None:
            (own, part), self._share = self._share, None
            self._means.add(*estimate.of_part(own, estimate.square(named), part, self._batch))

    def _sizes(self, run: Run) -> tuple[float, float, float]:
        """Samples of this worker's share of the window at hand, and of the window; and what makes the gradient of the
        share, which was divided by the weight of all, the mean of its own."""
        assert run.data is not None, "the data is opened before a step"
        assert run.group is not None, "the group is opened before a step"
        step = run.progress.step
        window = run.data.window(step)
        mine = run.group.assign(step, len(window))
        weights = [each.weights["loss"] for each in window]
        own = sum(weights[index] for index in mine)
        # A communicator may leave some of a window out.
        total = run.group.total([each.weights for each in window])["loss"]
        used = total / sum(weights) if total else 0.0
        part = sum(window[index].samples for index in mine) if own else 0
        return float(part), used * sum(each.samples for each in window), total / own if own else 0.0

    def _started(self, run: Run, event: RunStarted) -> None:
        if run.rank != 0:
            return
        if self._how == "workers" and event.precision == "fp16":
            # Its scale is in a worker's own gradients, and nobody tells it.
            self._how = "windows" if self.compare == "auto" else ""
            if not self._how:
                run.notice(
                    _NAME,
                    "with fp16 the loss scale is in a worker's own gradients, and no hook tells it, so there is no "
                    'estimate; compare = "windows" does without them',
                    level="warning",
                )
                return
        run.notice(_NAME, f"compares the gradients of {self._how}")

    def _logged(self, run: Run, event: Logged) -> None:
        found = self._means.read() if run.rank == 0 else None
        if found is None:
            return
        noise, signal = found
        run.bus.publish(
            NoiseScaleEstimated(
                time=time.time(),
                progress=event.progress,
                scale=_scale(noise, signal),
                noise=noise,
                signal=signal,
                batch=self._batch,
                compare=self._how,
            )
        )

    def _ended(self, run: Run) -> None:
        found = self._means.read() if run.rank == 0 and self._how else None
        if found is None:
            return
        scale = _scale(*found)
        if scale is None:
            text = "the signal cannot be told from the noise, so the noise scale is not known"
        else:
            text = f"the gradient noise scale is about {scale:.3g} samples; a window has {self._batch:.0f}"
        run.notice(_NAME, text)


def _scale(noise: float, signal: float) -> float | None:
    return noise / signal if noise > 0 and signal > 0 else None
