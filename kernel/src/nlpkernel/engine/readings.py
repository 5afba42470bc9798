"""Values of the steps since the last log, kept on the device and read in one go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
import torch
from torch import Tensor

if TYPE_CHECKING:
    from nlpkernel.hookspecs.communicator import Update


@attrs.frozen
class Reading:
    """What the host learns at a log interval.

    metrics: mean of each loss term over the interval (sum over weight), and the mean "norm"; None where nothing was
    computed. bad: step (from 0) of the first window that was not finite, while only the device knew.
    """

    metrics: dict[str, float | None]
    bad: int | None
    steps: int
    tokens: int
    samples: int
    skipped: int
    seconds: float


class Readings:
    """Collects without reading. A list of device scalars costs nothing but the append."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._values: list[Tensor] = []
        self._layout: list[tuple[int, tuple[str, ...], bool]] = []
        self._totals: dict[str, float] = {}
        self._steps = self._tokens = self._samples = self._skipped = 0
        self._start = time.monotonic()

    def __len__(self) -> int:
        return self._steps

    def restart(self) -> None:
        """Leave out the time that an evaluation or a save took."""
        self._start = time.monotonic() - self._elapsed

    def pause(self) -> None:
        """Stop the clock until `restart`."""
        self._elapsed = time.monotonic() - self._start

    def add(
        self,
        step: int,
        sums: Mapping[str, Tensor],
        totals: Mapping[str, float],
        update: Update,
        samples: int,
        tokens: int,
    ) -> None:
        """One window that ran. A window that the host knows was not applied counts as skipped, and for no mean."""
        self._steps += 1
        self._samples += samples
        self._tokens += tokens
        if update.applied is False:
            self._skipped += 1
            return
        self._values += sums.values()
        if update.norm is not None:
            self._values.append(update.norm)
        if update.bad is not None:
            self._values.append(update.bad)
        self._layout.append((step, tuple(sums), update.applied is None))
        for name in sums:
            self._totals[name] = self._totals.get(name, 0.0) + totals.get(name, 0.0)

    def skip(self, samples: int, tokens: int) -> None:
        """A window that was not run."""
        self._steps += 1
        self._skipped += 1
        self._samples += samples
        self._tokens += tokens

    def read(self) -> Reading:
        """The only place where a training run waits for its device."""
        values = iter(torch.stack(self._values).tolist() if self._values else ())
        sums: dict[str, float] = {}
        norms, bad = 0.0, None
        for step, names, deferred in self._layout:
            for name in names:
                sums[name] = sums.get(name, 0.0) + next(values)
            norms += next(values)
            if next(values) and deferred and bad is None:
                bad = step
        metrics: dict[str, float | None] = {
            name: sums[name] / self._totals[name] if self._totals[name] else None for name in sums
        }
        metrics.setdefault("loss", None)
        metrics["norm"] = norms / len(self._layout) if self._layout else None
        reading = Reading(
            metrics,
            bad,
            self._steps,
            self._tokens,
            self._samples,
            self._skipped,
            time.monotonic() - self._start,
        )
        self._clear()
        return reading
