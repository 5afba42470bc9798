"""The schedules that a plan can name: the rate over a run as a part of its peak. Light: no torch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import PlanError, TrainingError, fail
from nlpkernel_optim.curves import Curve, constant, cosine, inverse_sqrt, linear, stable_decay
from nlpkernel_optim.plateau import Falling

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.optimizer import Schedule

_FINAL = "the rate at the end, as a part of the peak"
_LENGTH = "updates until the end of the schedule; left out: the run's. After it the rate stays as it ended"


@component
class WarmUp:
    """Base of the schedules: a linear warm-up, as a number of updates or as a part of the run."""

    warmup: int = setting(default=0, ge=0, unit="count", help="updates over which the rate rises to its peak")
    warmup_fraction: float | None = setting(
        default=None, gt=0, lt=1, help="the same as a part of the length of the run"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.warmup and self.warmup_fraction is not None:
            yield "warmup_fraction", "the warm-up is given once, and warmup gives it already"

    def name(self) -> str:
        """What messages call this schedule."""
        return type(self).__name__.lower()

    def total(self, updates: int | None) -> int:
        """The number of updates that the schedule spans. Raises PlanError OPT003 where nobody knows it."""
        if updates is None:
            raise fail(
                PlanError,
                "OPT003",
                f"the schedule {self.name()} needs the length of the run",
                hint="give steps, epochs or tokens in [train], or length in the schedule",
            )
        return updates

    def warm(self, updates: int | None) -> int:
        """The number of warm-up updates."""
        if self.warmup_fraction is None:
            return self.warmup
        return round(self.warmup_fraction * self.total(updates))


@component
class Constant(WarmUp):
    """The peak rate throughout, after the warm-up."""

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """Make the schedule."""
        return Curve(self.warm(updates), constant)


@component
class _Spanned(WarmUp):
    """Base of the schedules that go down over the length of the run."""

    final: float = setting(default=0.0, ge=0, le=1, help=_FINAL)
    length: int | None = setting(default=None, ge=1, unit="count", help=_LENGTH)

    def spans(self, run: Run, updates: int | None) -> tuple[int, int]:
        """The warm-up, and the updates from its end to that of the schedule. Says where nothing is left for these."""
        total = self.total(self.length or updates)
        warm = self.warm(total)
        if warm >= total:
            text = (
                f"the warm-up of {warm} updates fills all {total}, so the rate never comes down from its peak"
            )
            run.notice(self.name(), text, level="warning")
        return warm, max(0, total - warm)


@component
class Linear(_Spanned):
    """From the peak to `final` in a straight line, after the warm-up."""

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """Make the schedule."""
        warm, span = self.spans(run, updates)
        return Curve(warm, partial(linear, span=span, final=self.final))


@component
class Cosine(_Spanned):
    """From the peak to `final` along half a cosine, after the warm-up (Loshchilov and Hutter, 2017)."""

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """Make the schedule."""
        warm, span = self.spans(run, updates)
        return Curve(warm, partial(cosine, span=span, final=self.final))


@component
class Wsd(_Spanned):
    """Warm-up, stable, decay: the peak until the last part of the run, which goes down to `final` (Hu et al., 2024)."""

    decay: int | None = setting(
        default=None, ge=1, unit="count", help="updates of the last part; left out: decay_fraction of the run"
    )
    decay_fraction: float | None = setting(
        default=None, gt=0, le=1, help="the last part as a part of the run; left out, as decay is: 0.1"
    )
    shape: Literal["sqrt", "linear", "cosine"] = setting(
        default="sqrt", help="the way down: 1 - sqrt(x), 1 - x, or half a cosine"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        yield from super().check_settings()
        if self.decay is not None and self.decay_fraction is not None:
            yield "decay_fraction", "the last part is given once, and decay gives it already"

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """Make the schedule."""
        warm, span = self.spans(run, updates)
        fraction = 0.1 if self.decay_fraction is None else self.decay_fraction
        decay = self.decay or max(1, round(fraction * (warm + span)))
        if 0 < span < decay:
            text = f"of the last part's {decay} updates only {span} are left after the warm-up"
            run.notice(self.name(), text, level="warning")
        shape = partial(stable_decay, span=span, decay=min(decay, span), shape=self.shape, final=self.final)
        return Curve(warm, shape)


@component
class InverseSqrt(WarmUp):
    """Down with the square root of the update number, after the warm-up (Vaswani et al., 2017). Needs no length."""

    timescale: int | None = setting(
        default=None,
        ge=1,
        unit="count",
        help="updates after which the rate is down to 0.71; left out: warmup, or 1",
    )
    minimum: float = setting(default=0.0, ge=0, le=1, help="least rate, as a part of the peak")

    def name(self) -> str:
        """What messages call this schedule."""
        return "inverse-sqrt"

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """Make the schedule."""
        warm = self.warm(updates)
        timescale = self.timescale or max(1, warm)
        return Curve(warm, partial(inverse_sqrt, timescale=timescale, minimum=self.minimum))


@component
class Plateau(WarmUp):
    """Down by a factor each time that a metric of the evaluations stops getting better. Needs no length."""

    metric: str = setting(default="validation/loss", min_length=1, help="split and name of the metric")
    mode: Literal["min", "max"] = setting(default="min", help="whether a smaller or a larger value is better")
    factor: float = setting(default=0.5, gt=0, lt=1, help="what the rate is multiplied by")
    patience: int = setting(default=3, ge=0, help="evaluations without a better value that are let pass")
    threshold: float = setting(
        default=1e-4, ge=0, lt=1, help="how much better a value must be to count as better"
    )
    relative: bool = setting(
        default=True, help="whether threshold is a part of the best value, or a difference"
    )
    cooldown: int = setting(default=0, ge=0, help="evaluations after a fall that do not count")
    minimum: float = setting(default=0.0, ge=0, le=1, help="least rate, as a part of the peak")

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """Make the schedule. Raises TrainingError OPT005 where the plan never evaluates the metric during the run."""
        evaluate = run.train.evaluate
        split = self.metric.partition("/")[0]
        if evaluate.every is None:
            raise fail(
                TrainingError,
                "OPT005",
                "plateau learns from evaluations, and the plan has none before the end of the run",
                hint="give evaluate = { every = ... } in [train]",
            )
        if split not in evaluate.splits:
            raise fail(
                TrainingError,
                "OPT005",
                f"plateau watches {self.metric!r}, and the plan evaluates {', '.join(evaluate.splits)}",
                hint="a metric is written split/name",
            )
        return Falling(
            warmup=self.warm(updates),
            metric=self.metric,
            mode=self.mode,
            lower=self.factor,
            patience=self.patience,
            threshold=self.threshold,
            relative=self.relative,
            cooldown=self.cooldown,
            minimum=self.minimum,
        )
