"""Whether all workers are about to run the same: compared over the store, before any exchange could hang or abort."""

from __future__ import annotations

from collections.abc import Mapping

import msgpack  # type: ignore[import-untyped, unused-ignore]
from torch.distributed.distributed_c10d import Store

from nlpkernel.agreement import difference
from nlpkernel.errors import TrainingError, fail
from nlpkernel_torchdist.meeting import gathered, said


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
