"""Whether all workers are about to run the same: compared over the store, before any exchange could hang or abort."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import zip_longest

import msgpack  # type: ignore[import-untyped, unused-ignore]
from torch.distributed.distributed_c10d import Store

from nlpkernel.errors import TrainingError, fail
from nlpkernel_torchdist.meeting import gathered, said

#: What a part of the fingerprint is called in a message.
_CALLED = {"schema": "the parameters of the model", "data": "the content of the data", "plan": "the plan"}
#: Characters of a line that are shown.
_SHOWN = 160


def agree(store: Store, rank: int, world: int, fingerprint: Mapping[str, str], timeout: float) -> None:
    """Compare the texts of all workers with those of the first. Raise TrainingError (TDI002) on all of them where one
    has others, TDI003 where one does not come."""
    if rank == 0:
        texts = msgpack.packb(dict(fingerprint))
        store.set("agree/texts", texts)  # type: ignore[arg-type, unused-ignore] # It takes bytes too.
        store.set("agree/0", "")
        words = [word.decode() for word in gathered(store, "agree", world, timeout)]
        store.set("agree/verdict", "\n".join(filter(None, words)))
    else:
        first = msgpack.unpackb(said(store, "agree/texts", timeout))
        store.set(f"agree/{rank}", difference(rank, first, fingerprint))
    verdict = said(store, "agree/verdict", 2 * timeout).decode()
    if verdict:
        raise fail(
            TrainingError,
            "TDI002",
            verdict.replace("\n", "; "),
            hint="install the same releases everywhere, and start all workers with the same plan",
        )


def difference(rank: int, first: Mapping[str, str], own: Mapping[str, str]) -> str:
    """What distinguishes a worker from the first, as a clause; empty where nothing does."""
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
