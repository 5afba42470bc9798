"""How gradients of data workers become those of the whole window: what each way has in common, and the simplest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from nlpkernel_torchdist.compress.reduction import Reduction


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

    def __init__(self, called: Callable[..., Any]) -> None:
        self.model = called
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
        self,
        called: Callable[..., Any],
        named: Callable[[], Sequence[tuple[str, Tensor]]],
        group: dist.ProcessGroup,
        reduction: Reduction | None = None,
        apart: Callable[[str], str] = lambda name: "",
    ) -> None:
        """`named`: gradients of this worker by the names of their parameters. `apart`: a word for each parameter; those
        with different words do not travel together."""
        super().__init__(called)
        self._named, self._group, self._reduction, self._apart = named, group, reduction, apart

    def prepare(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Make known beforehand what will be exchanged."""
        if self._reduction is not None:
            for names, bucket in self._buckets(named):
                self._reduction.encoder(
                    [(name, each.shape) for name, each in zip(names, bucket, strict=True)]
                )

    def finish(self) -> None:
        """Add up."""
        for names, bucket in self._buckets(self._named()):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            if self._reduction is None:
                dist.all_reduce(flat, group=self._group)
            else:
                sizes = [(name, gradient.shape) for name, gradient in zip(names, bucket, strict=True)]
                self._reduction.add_up(flat, self._reduction.encoder(sizes))
            parts = flat.split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(
                bucket, [part.view_as(gradient) for part, gradient in zip(parts, bucket, strict=True)]
            )

    def _buckets(self, named: Sequence[tuple[str, Tensor]]) -> Iterator[tuple[list[str], list[Tensor]]]:
        names = {id(tensor): name for name, tensor in named}
        apart: dict[str, list[Tensor]] = {}
        for name, tensor in named:
            apart.setdefault(self._apart(name), []).append(tensor)
        for tensors in apart.values():
            for bucket in buckets(tensors):
                yield [names[id(tensor)] for tensor in bucket], bucket


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
