"""What the steps since the last log left on the device, read in one go."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs
import torch
from torch import Tensor

from nlpkernel.progress import Progress

if TYPE_CHECKING:
    from nlpkernel.hookspecs.communicator import Update
    from nlpkernel.hookspecs.task import Counts

    _Entry = tuple[Progress, Mapping[str, Tensor], Mapping[str, float], Update | None]


@attrs.frozen
class Reading:
    """What the host learns at a log interval.

    metrics: mean of each loss term over the interval (sum over weight), and the mean "norm"; None where nothing was
    computed. losses: the mean "loss" of each window, None where nothing was computed. bad: where the run stood before
    the first window that was not finite, while only the device knew.
    """

    metrics: dict[str, float | None]
    losses: tuple[float | None, ...]
    bad: Progress | None
    steps: int
    tokens: int
    samples: int
    skipped: int
    seconds: float


class Readings:
    """Collects without reading. A list of device scalars costs nothing but the append."""

    def __init__(self) -> None:
        self._steps: list[_Entry] = []
        self._start = time.monotonic()

    def __len__(self) -> int:
        return len(self._steps)

    def pause(self) -> None:
        """Stop the clock until `restart`: an evaluation or a save is no part of the interval."""
        self._paused = time.monotonic()

    def restart(self) -> None:
        """Go on."""
        self._start += time.monotonic() - self._paused

    def add(
        self, before: Progress, sums: Mapping[str, Tensor], totals: Mapping[str, float], update: Update | None
    ) -> None:
        """One window. One that the host knows was not applied has no `update`: it is skipped, and in no mean."""
        self._steps.append((before, sums, totals, update))

    def read(self, now: Progress, merge: Callable[[Counts], Counts]) -> Reading:
        """The only place where a training run waits for its device. `merge` adds up the terms of all workers, unless
        updates have told them; norms are the same on all of them."""
        terms: list[Tensor] = []
        checks: list[Tensor] = []
        for _, sums, _, update in self._steps:
            if update is not None:
                terms += sums.values()
                checks += (update.norm, update.bad)
        known = any(update is not None and update.sums is not None for *_, update in self._steps)
        stacked = torch.stack(terms) if terms else torch.zeros(0)
        merged = merge({"terms": stacked})["terms"] if terms and not known else stacked
        read = torch.cat((merged, *([torch.stack(checks)] if checks else []))).tolist()
        values, checked = iter(read[: len(terms)]), iter(read[len(terms) :])
        means: dict[str, float] = defaultdict(float)
        weights: dict[str, float] = defaultdict(float)
        losses: list[float | None] = []
        norms, ran, bad = 0.0, 0, None
        for before, sums, totals, update in self._steps:
            losses.append(None)
            if update is None:
                continue
            ran += 1
            for name in sums:
                value = next(values)
                means[name] += value
                weights[name] += totals[name]
                if name == "loss" and totals[name]:
                    losses[-1] = value / totals[name]
            norms += next(checked)
            if next(checked) and update.applied is None and bad is None:
                bad = before
        metrics: dict[str, float | None] = {
            "loss": None,
            **{name: value / weights[name] if weights[name] else None for name, value in means.items()},
            "norm": norms / ran if ran else None,
        }
        first, clock = self._steps[0][0], time.monotonic()
        reading = Reading(
            metrics,
            tuple(losses),
            bad,
            len(self._steps),
            now.tokens - first.tokens,
            now.samples - first.samples,
            len(self._steps) - ran,
            clock - self._start,
        )
        self._steps, self._start = [], clock
        return reading
