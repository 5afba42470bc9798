"""Events: facts told on the bus. Nobody may answer one; who wants to be asked implements a hook.

Every event is a frozen attrs class of plain values, so that it can be written as JSON and sent to another process.
`StepCompleted` is the exception: it holds values on the device, and whoever reads them pays for the wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from nlpkernel.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Event:
    """Base of all events. `time` is seconds since 1970."""

    time: float


@attrs.frozen(kw_only=True)
class Working(Event):
    """Long work outside the steps goes on: reading, tokenizing, building. `total` is None where nobody knows it."""

    what: str
    done: float
    total: float | None
    unit: str


@attrs.frozen(kw_only=True)
class Notice(Event):
    """Something that a person should read. `level` is "info" or "warning"; `source` is a component or the kernel."""

    level: str
    source: str
    message: str


@attrs.frozen(kw_only=True)
class RunStarted(Event):
    """Everything is open; the first step comes next. `start` is where this process takes up."""

    name: str
    folder: str
    start: Progress
    steps: int
    steps_per_epoch: float | None
    parameters: int
    device: str
    precision: str
    world: int


@attrs.frozen(kw_only=True)
class Restarted(Event):
    """The supervisor started the run again, for the `number`-th time, and it goes on from `progress`. `reason` says
    what was lost."""

    progress: Progress
    number: int
    reason: str


@attrs.frozen(kw_only=True)
class StepCompleted(Event):
    """A step ended. Its values are on the device: reading one waits for it. A window that was not run has no `sums`
    and no `norm`."""

    progress: Progress
    sums: Mapping[str, Tensor]
    totals: Mapping[str, float]
    norm: Tensor | None


@attrs.frozen(kw_only=True)
class Logged(Event):
    """The log interval ended and the device was read once.

    `metrics` holds means over the interval: the loss terms (each sum over its weight), "norm", "rate"; a value
    that was not computed is None. `losses` holds the term "loss" of each of its windows. `seconds`, `tokens` and
    `samples` are of the interval; `skipped` counts windows without an update.
    """

    progress: Progress
    steps: int
    metrics: Mapping[str, float | None]
    losses: tuple[float | None, ...]
    seconds: float
    tokens: int
    samples: int
    skipped: int
    memory: int


@attrs.frozen(kw_only=True)
class WindowSkipped(Event):
    """A window changed no weight. `reason` is "empty" (no counted label), "non-finite", "overflow",
    "spike" or "roll-back" (a policy asked to leave it out)."""

    step: int
    reason: str
    samples: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Evaluated(Event):
    """A split was evaluated: every sample of it exactly once."""

    progress: Progress
    split: str
    metrics: Mapping[str, float | None]
    samples: int
    seconds: float
    best: bool


@attrs.frozen(kw_only=True)
class VersionSaved(Event):
    """A version is complete. `progress` is the run's when it was taken; seconds: from then to its completion."""

    progress: Progress
    version: str
    bytes: int
    seconds: float


@attrs.frozen(kw_only=True)
class VersionFailed(Event):
    """A version could not be written, and the run goes on without it. `progress` is the run's when it was taken."""

    progress: Progress
    error: str


@attrs.frozen(kw_only=True)
class Decided(Event):
    """A policy asked for something other than to go on."""

    progress: Progress
    action: str
    reason: str
    source: str


@attrs.frozen(kw_only=True)
class ObserverDetached(Event):
    """An observer failed three times and is not called any more."""

    source: str
    hook: str
    error: str


@attrs.frozen(kw_only=True)
class RunEnded(Event):
    """The run is over, and everything closes after this. `status` is as in `Report`."""

    progress: Progress
    status: str
    reason: str
    seconds: float
