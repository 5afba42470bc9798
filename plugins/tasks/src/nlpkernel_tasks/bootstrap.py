"""Whether one model is better than another on the same samples: a paired bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

#: Draws that are counted at once.
_TOGETHER = 50

Value = Callable[[Mapping[str, Any]], Mapping[str, float | None]]


class Difference(NamedTuple):
    """Of one metric: the values of both, the second less the first, the interval in which the middle 95% of the draws
    are, and twice the share of draws on the other side of zero (at most 1)."""

    metric: str
    first: float
    second: float
    low: float
    high: float
    chance: float


def compare(
    first: Mapping[str, Any], second: Mapping[str, Any], value: Value, draws: int, seed: int
) -> list[Difference]:
    """Compare counts of the same samples in the same order, each [samples, ...].

    Samples are drawn with replacement, as many as there are, the same ones for both, and all metrics taken of them
    (Efron and Tibshirani, 1993; for translation Koehn, 2004). Metrics that have no value for some draw are left out.
    """
    samples = len(next(iter(first.values())))
    generator = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    whole = [_values(counts, np.ones((1, samples)), value)[0] for counts in (first, second)]
    for begun in range(0, draws, _TOGETHER):
        size = min(_TOGETHER, draws - begun)
        times = generator.multinomial(samples, np.full(samples, 1 / samples), size=size).astype(np.float64)
        for one, other in zip(_values(first, times, value), _values(second, times, value), strict=True):
            for name in one:
                a, b = one[name], other[name]
                if a is not None and b is not None:
                    found.setdefault(name, []).append(b - a)
    made = []
    for name, differences in found.items():
        mine, theirs = whole[0][name], whole[1][name]
        if len(differences) < draws or mine is None or theirs is None or not np.isfinite(differences).all():
            continue
        low, high = np.quantile(differences, [0.025, 0.975])
        less, more = np.mean(np.array(differences) <= 0), np.mean(np.array(differences) >= 0)
        chance = min(1.0, 2 * float(min(less, more)))
        made.append(Difference(name, mine, theirs, float(low), float(high), chance))
    return made


def _values(counts: Mapping[str, Any], times: Any, value: Value) -> list[Mapping[str, float | None]]:
    """The metrics where each sample comes so many `times` [draws, samples]."""
    summed = {name: np.tensordot(times, each, axes=(1, 0)) for name, each in counts.items()}
    return [value({name: each[draw].tolist() for name, each in summed.items()}) for draw in range(len(times))]
