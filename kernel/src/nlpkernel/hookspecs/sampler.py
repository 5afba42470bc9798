"""The extension point `sampler`: which samples each step sees, and in which micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import attrs

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import numpy as np

    from nlpkernel.context import Run
    from nlpkernel.sampling import Part

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

    count: how many. lengths: tokens of each, int64 [count]. labels: number of each one's class, int64 [count], and
    classes: their names; None and empty where samples have none. groups: the sources of a mixture in order, which
    together hold all samples; empty where there is one source.
    batch, micro: samples of a window and of a micro-batch. partial, seed: as `[train]` says.
    """

    count: int
    lengths: Array
    labels: Array | None = None
    classes: Sequence[str] = ()
    groups: Sequence[Group] = ()
    batch: int
    micro: int
    partial: str
    seed: int


class Sampler(Protocol):
    """Which samples a window holds is a pure function of (seed, step): not of history, not of the number of workers.

    dropped: samples that an epoch leaves out. per_epoch: windows of one epoch; a fraction where an epoch ends inside a
    window.
    """

    dropped: int
    per_epoch: float

    def window(self, step: int) -> Sequence[Part]:
        """The micro-batches of window `step` (from 0), in order."""

    def steps(self, epochs: float) -> int:
        """The fewest windows that hold so many passes over the samples."""

    def epoch(self, step: int) -> float:
        """Passes over the samples that lie before window `step`."""


@hook("pick")
def create_sampler(run: Run, samples: Samples) -> Sampler:  # type: ignore[empty-body]
    """Make the sampler. Raise DataError where the samples lack what it goes by, or no step could ever happen."""


POINT = Point(name="sampler", must=("create_sampler",), help="which samples each step sees")
