"""How gradients of data workers become those of the whole window: what each way has in common, and the simplest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Sync(Protocol):
    """A way to add up gradients over the data workers. `factor`: what each loss is multiplied by, to undo a mean."""

    factor: float
    #: What a forward with gradient calls.
    model: Callable[..., Any]

    def microbatch(self, *, last: bool) -> AbstractContextManager[object]:
        """Around forward and backward of one micro-batch of a window; nothing is exchanged before the last."""

    def finish(self) -> None:
        """After the window: wait until the gradients are those of all."""


class Alone:
    """There is one data worker."""

    factor = 1.0

    def __init__(self, module: nn.Module) -> None:
        self.model: Callable[..., Any] = module
        self._nothing = nullcontext()

    def microbatch(self, *, last: bool) -> AbstractContextManager[object]:
        """Nothing is exchanged."""
        return self._nothing

    def finish(self) -> None:
        """Nothing to wait for."""


class Reduced(Alone):
    """Gradients are added up once the window is through: under layouts that DDP does not know, and where somebody wants
    to see this worker's own first. Nothing is hidden behind the backward pass."""

    def __init__(
        self, module: nn.Module, gradients: Callable[[], Sequence[Tensor]], group: dist.ProcessGroup
    ) -> None:
        super().__init__(module)
        self._gradients, self._group = gradients, group

    def finish(self) -> None:
        """Add up."""
        for bucket in buckets(self._gradients()):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            dist.all_reduce(flat, group=self._group)
            parts = flat.split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(
                bucket, [part.view_as(gradient) for part, gradient in zip(parts, bucket, strict=True)]
            )


#: Bytes that travel together.
BUCKET = 25 << 20


def buckets(tensors: Sequence[Tensor], size: int = BUCKET) -> list[list[Tensor]]:
    """Tensors that travel together: of one type, and of about `size` bytes."""
    made: list[list[Tensor]] = []
    filling: dict[torch.dtype, tuple[list[Tensor], int]] = {}
    for tensor in tensors:
        bucket, held = filling.get(tensor.dtype, ([], 0))
        if not bucket or held + tensor.nbytes > size:
            bucket, held = [], 0
            made.append(bucket)
        bucket.append(tensor)
        filling[tensor.dtype] = bucket, held + tensor.nbytes
    return made
