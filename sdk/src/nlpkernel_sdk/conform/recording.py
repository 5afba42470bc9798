"""The result of a look at a distribution, written into the lock of a plan that uses it."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import UsageError, fail
from nlpkernel.lock import Locked, package_hash
from nlpkernel_sdk.conform.outcome import Verdict
from nlpkernel_sdk.conform.subject import Subject


def record(verdict: Verdict, subject: Subject, path: Path) -> None:
    """Write the verdict beside what the lock `path` says, in place of an older one. Raise UsageError (SDK015) where the
    lock's plan does not use the distribution, or was locked with other sources than those that were looked at."""
    locked = Locked.read(path)
    name = verdict.distribution
    wanted = locked.contents(name)
    if not wanted:
        raise fail(UsageError, "SDK015", f"the plan of the lock {str(path)!r} uses nothing of {name}")
    looked_at = {package_hash(package) for package in subject.packages}
    if not wanted <= looked_at:
        raise fail(
            UsageError,
            "SDK015",
            f"the lock {str(path)!r} is of other sources of {name} than those that were looked at",
            hint="write the lock again with `nlpkernel lock`",
        )
    levels: dict[str, Any] = {}
    for level in dict.fromkeys(each.level for each in verdict.outcomes):
        levels[level] = dict(Counter(each.status for each in verdict.outcomes if each.level == level))
    entry = {
        "release": verdict.release,
        "content": sorted(wanted),
        "conforms": verdict.conforms,
        "levels": levels,
        "known": sorted(each.case for each in verdict.outcomes if each.status == "known"),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    attrs.evolve(locked, conformance={**locked.conformance, name: entry}).write(path)
