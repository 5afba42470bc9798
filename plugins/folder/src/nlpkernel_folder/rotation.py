"""Which versions stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

from nlpkernel.state import VersionInfo


def kept(versions: Sequence[VersionInfo], last: int | None, best: int, main: Sequence[str]) -> set[str]:
    """Names of the versions that stay: the `last` newest (all of them if None) and the `best` best.

    versions: oldest first. main: the name of the metric that decides, and "min" or "max". A version whose
    value is missing, None, NaN or infinite is never best, and of two equal ones the earlier is better.
    """
    names = [version.name for version in versions]
    if last is None:
        return set(names)
    stay = set(names[-last:])
    if best:
        name, mode = main
        sign = -1.0 if mode == "max" else 1.0
        scored = [
            (sign * value, version.name)
            for version in versions
            if (value := version.metrics.get(name)) is not None and math.isfinite(value)
        ]
        # The sort is stable, so the earlier of two equal ones comes first.
        stay.update(version for _, version in sorted(scored, key=itemgetter(0))[:best])
    return stay
