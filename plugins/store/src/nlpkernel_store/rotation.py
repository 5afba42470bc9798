"""Which versions stay."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter

import attrs


@attrs.frozen(kw_only=True)
class Candidate:
    """A version of the current line, as rotation sees it."""

    name: str
    step: int
    metrics: Mapping[str, float | None]


@attrs.frozen(kw_only=True)
class Rule:
    """What `keep` says: the `last` newest, the `best` best, and every version of a multiple of `every` steps."""

    last: int = 1
    best: int = 0
    every: int | None = None


def kept(
    versions: Sequence[Candidate], rule: Rule | None, main: Sequence[str], protected: Collection[str] = ()
) -> set[str]:
    """Names of the versions that stay: all of them without a rule.

    versions: oldest first. main: the metric that decides what is best, and "min" or "max". protected: stay in any case.
    A version whose value is missing, None or not finite is never best, and of two equal ones the earlier is better.
    """
    names = [version.name for version in versions]
    if rule is None:
        return set(names)
    stay = set(names[-rule.last :]) | set(protected).intersection(names)
    if rule.every:
        stay.update(version.name for version in versions if version.step % rule.every == 0)
    return stay | set(best(versions, main)[: rule.best])


def best(versions: Sequence[Candidate], main: Sequence[str]) -> list[str]:
    """Names of the versions that have a value to be judged by, the best first."""
    if not main:
        return []
    metric, mode = main
    sign = -1.0 if mode == "max" else 1.0
    scored = [
        (sign * value, version.name)
        for version in versions
        if (value := version.metrics.get(metric)) is not None and math.isfinite(value)
    ]
    # The sort is stable, so the earlier of two equal ones comes first.
    return [name for _, name in sorted(scored, key=itemgetter(0))]
