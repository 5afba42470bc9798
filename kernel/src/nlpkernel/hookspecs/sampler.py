"""The extension point `sampler`: which samples each step sees, and in which micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import attrs

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import numpy as np

    from nlpkernel.context import Run
    from nlpkernel.sampling import Part, Partial

    Array = np.ndarray[Any, np.dtype[Any]]


class Group(NamedTuple):
    """The samples of one source of a mixture: those from `start` to `stop`; its weight in the plan."""

    name: str
    start: int
    stop: int
    weight: float


@attrs.frozen(kw_only=True, eq=False)
class Samples:
    """The training samples, as a sampler may look at them.

    count: how many. window: tokens of the longest. lengths: tokens of each, int64 [count]. starts: places in the text
    at which a full sample could begin; 0 where samples begin where documents do.
    labels: number of each one's class, int64 [count], and classes: their names; None and empty where samples have none.
    weights: how often each should come, relative to the others, float64 [count]; None where the plan names no field for
    it. groups: the sources of a mixture in order, which together hold all samples; empty where there is one source.
    batch, micro: samples of a window and of a micro-batch. partial, seed: as `[train]` says. fixed: whether all
    micro-batches have to be of the same size.
    """

    count: int
    window: int
    lengths: Array
    starts: int = 0
    labels: Array | None = None
    classes: Sequence[str] = ()
    weights: Array | None = None
    groups: Sequence[Group] = ()
    batch: int
    micro: int
    partial: Partial
    seed: int
    fixed: bool = False


class Sampler(Protocol):
    """Which samples a window holds is a pure function of (seed, step): not of history, not of the number of workers.

    dropped: samples that an epoch leaves out. anywhere: rows are named by the place in the text where they begin
    (below `Samples.starts`), not by the number of a sample.
    """

    dropped: int
    anywhere: bool

    def window(self, step: int) -> Sequence[Part]:
        """The micro-batches of window `step` (from 0), in order."""

    def steps(self, epochs: float) -> int:
        """The fewest windows that hold so many passes over the samples."""

    def seen(self, step: int) -> int:
        """Samples in all windows before window `step`."""

    def epoch(self, step: int) -> float:
        """Passes over the samples before window `step`; a whole number where an epoch ends with a window."""


@hook("pick")
def create_sampler(run: Run, samples: Samples) -> Sampler:  # type: ignore[empty-body]
    """Make the sampler. Raise DataError where the samples lack what it goes by, or no step could ever happen."""


POINT = Point(name="sampler", must=("create_sampler",), help="which samples each step sees")
