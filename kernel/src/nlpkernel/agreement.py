"""Whether all workers of a run are about to run the same: what distinguishes two fingerprints, said for people."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import zip_longest

#: What a part of a fingerprint is called in a message.
_CALLED = {"schema": "the parameters of the model", "data": "the content of the data", "plan": "the plan"}
#: Characters of a line that are shown.
_SHOWN = 160


def difference(rank: int, first: Mapping[str, str], own: Mapping[str, str]) -> str:
    """What distinguishes a worker from the first, as a clause; empty where nothing does. Line ends do not count."""
    for name in [*first, *own]:
        left, right = first.get(name, ""), own.get(name, "")
        if digest(left) == digest(right):
            continue
        pairs = zip_longest(left.splitlines(), right.splitlines(), fillvalue="nothing")
        line, (there, here) = next(
            (number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]
        )
        called = _CALLED.get(name, name)
        return (
            f"worker {rank} differs from worker 0 in {called}, first in line {line}: "
            f"{here[:_SHOWN]!r}, and on worker 0 {there[:_SHOWN]!r}"
        )
    return ""


def digest(text: str) -> bytes:
    """A hash of a text whose line ends do not count."""
    return hashlib.sha256("\n".join(text.splitlines()).encode()).digest()
