"""Whole copies of a model on every data worker, by torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
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
        called = _Called(module)
        # Values are the same on all workers: they are drawn by name, or come from one version.
        self._wrapped = DistributedDataParallel(
            called,
            process_group=group,
            broadcast_buffers=False,
            init_sync=False,
            gradient_as_bucket_view=True,
        )
        self._settle(called)
        self.model: Callable[..., Any] = self._wrapped
        self._nothing = nullcontext()

    def microbatch(self, *, last: bool) -> AbstractContextManager[object]:
        """DDP exchanges in every backward pass, unless it is told not to."""
        return self._nothing if last else self._wrapped.no_sync()

    def finish(self) -> None:
        """DDP has waited at the end of the backward pass."""

    def _settle(self, called: _Called) -> None:
        """Let DDP form its buckets for good. It forms them anew after its first backward pass, and where an element
        lies in a bucket decides in which order workers are added up: a resumed run would round otherwise than one that
        has been going on."""
        called.order_only = True
        self._wrapped().backward()
        called.order_only = False
        for parameter in called.parameters():
            parameter.grad = None


class _Called(nn.Module):
    """What DDP wraps: the model, or something that has gradients in the order in which a model's become known: the last
    registered first."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.order_only = False

    def forward(self, *args: Any, **inputs: Any) -> Any:
        """The model's."""
        if not self.order_only:
            return self.module(*args, **inputs)
        total = torch.zeros(())
        for parameter in self.parameters():
            if parameter.requires_grad:
                total = total.to(parameter.device) + parameter.sum() * 0
        return total
