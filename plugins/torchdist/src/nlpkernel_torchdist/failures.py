"""What torch says of an exchange that failed, in our words."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import torch.distributed as dist

from nlpkernel.errors import TrainingError, fail
from nlpkernel_torchdist.component import OWNER

#: Seconds that a worker whose exchange failed leaves to whoever sees which other one is gone.
_PATIENCE = 3.0
#: Words of torch's errors that only an exchange gives.
_WORDS = ("gloo", "NCCL", "Connection closed", "Connection reset", "ProcessGroup", "Timed out waiting")


class Exchanging(AbstractContextManager[None]):
    """Around whatever exchanges. Raise TrainingError (TDI007) where that fails. Where another worker is gone, that one
    is the news, so this one waits a moment for whoever sees it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, RuntimeError) or not _is_of_exchange(error):
            return
        time.sleep(_PATIENCE)
        reason = str(error).partition("\n")[0]
        raise fail(
            TrainingError,
            "TDI007",
            f"an exchange between workers failed: {reason}",
            owner=OWNER,
            hint="the log says whether another worker ended before; `--restarts N` begins again by itself",
        ) from error


#: It holds nothing, so one is enough.
EXCHANGING = Exchanging()


def _is_of_exchange(error: RuntimeError) -> bool:
    text = str(error)
    return isinstance(error, dist.DistError) or any(word in text for word in _WORDS)
