"""How gradients of data workers become those of the whole window: what each way has in common, and the simplest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """Gradients are added up once the window is through: under layouts that DDP does not know, where somebody wants to
    see this worker's own first, and where a parameter may have none. Nothing is hidden behind the backward pass.

    All trained parameters travel, whether this worker has a gradient of them or not, or workers would add up different
    things. Who has one travels along; a parameter of which nobody has one has none afterwards, as in one process.
    """

    def __init__(
        self,
        called: Callable[..., Any],
        trained: Callable[[], Sequence[tuple[str, Tensor]]],
        group: dist.ProcessGroup,
        reduction: Reduction | None = None,
        apart: Callable[[str], str] = lambda name: "",
    ) -> None:
        """`trained`: parameters of this worker by their names. `apart`: a word for each of them; those with different
        words do not travel together. Those of the words "" and "cut" are as many on all who have copies of them."""
        super().__init__(called)
        self._trained, self._group, self._reduction, self._apart = trained, group, reduction, apart
        self._ready = False

    def prepare(self) -> None:
        """Settle what travels together, and make it known to the compressor."""
        self._ready = True
        named = list(self._trained())
        self._tensors = [tensor for _, tensor in named]
        names = {id(tensor): name for name, tensor in named}
        apart: dict[str, list[Tensor]] = {}
        for name, tensor in named:
            apart.setdefault(self._apart(name), []).append(tensor)
        self._buckets = [bucket for tensors in apart.values() for bucket in buckets(tensors)]
        self._sizes = [[(names[id(tensor)], tensor.shape) for tensor in bucket] for bucket in self._buckets]
        #: With which bucket it travels who has gradients. None: by itself; a compressor does not keep it exact.
        self._with: int | None = None
        if self._reduction is None:
            plain = {id(tensor) for word in ("", "cut") for tensor in apart.get(word, ())}
            self._with = next((at for at, bucket in enumerate(self._buckets) if id(bucket[0]) in plain), None)
        else:
            for sizes in self._sizes:
                self._reduction.encoder(sizes)
        if self._tensors:
            like = self._tensors[0] if self._with is None else self._buckets[self._with][0]
            self._all = torch.ones(len(self._tensors), dtype=like.dtype, device=like.device)

    def finish(self) -> None:
        """Add up."""
        if not self._ready:
            self.prepare()
        if not self._tensors:
            return
        lacking = [at for at, tensor in enumerate(self._tensors) if tensor.grad is None]
        having = self._all.clone()
        if lacking:
            having[lacking] = 0
            for at in lacking:
                self._tensors[at].grad = torch.zeros_like(self._tensors[at])
        for at, bucket in enumerate(self._buckets):
            gradients = [gradient for tensor in bucket if (gradient := tensor.grad) is not None]
            flats = [gradient.reshape(-1) for gradient in gradients]
            rides = at == self._with
            flat = torch.cat([*flats, having] if rides else flats)
            if self._reduction is None:
                dist.all_reduce(flat, group=self._group)
            else:
                self._reduction.add_up(flat, self._reduction.encoder(self._sizes[at]))
            parts = torch.split(flat, [each.numel() for each in ([*flats, having] if rides else flats)])
            torch._foreach_copy_(
                gradients, [part.view_as(each) for part, each in zip(parts, gradients, strict=False)]
            )
            if rides:
                having = parts[-1]
        if self._with is None:
            dist.all_reduce(having, group=self._group)
        if lacking:
            self._forget(lacking, having)

    def _forget(self, lacking: Sequence[int], having: Tensor) -> None:
        """A gradient that nobody has is none, unless something was owed on it."""
        for at, number in zip(lacking, having[list(lacking)].tolist(), strict=True):
            tensor = self._tensors[at]
            if not number and not (self._reduction is not None and bool(tensor.grad.any())):  # type: ignore[union-attr]
                tensor.grad = None


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
