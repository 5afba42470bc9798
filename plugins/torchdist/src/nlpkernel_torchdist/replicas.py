"""Whole copies of a model on every data worker, by torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Replicas:
    """Gradients are exchanged while the backward pass of the last micro-batch goes on.

    DDP takes the mean over workers. What we want is the sum, since each loss is divided by the weight of the whole
    window already: so each loss counts as many times as there are workers.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup) -> None:
        self.factor = float(dist.get_world_size(group))
        # Values are the same on all workers: they are drawn by name, or come from one version.
        self._wrapped = DistributedDataParallel(
            module,
            process_group=group,
            broadcast_buffers=False,
            init_sync=False,
            gradient_as_bucket_view=True,
        )
        self.model: Callable[..., Any] = self._wrapped
        self._nothing = nullcontext()

    def microbatch(self, *, last: bool) -> AbstractContextManager[object]:
        """DDP exchanges in every backward pass, unless it is told not to."""
        return self._nothing if last else self._wrapped.no_sync()

    def finish(self) -> None:
        """DDP has waited at the end of the backward pass."""
