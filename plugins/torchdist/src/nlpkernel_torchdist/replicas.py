"""Whole copies of a model on every data worker, by torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

    from nlpkernel_torchdist.compress.reduction import Reduction
    from nlpkernel_torchdist.sync import Sync


#: MiB of gradients that travel together: the most (torch's own number), and the least that is worth an exchange.
_MOST, _LEAST = 25.0, 1.0
#: Exchanges of a smaller model. All but the last are hidden behind the backward pass.
_EXCHANGES = 8


def bucket_size(module: nn.Module) -> float | None:
    """MiB of gradients that travel together; None for torch's own choice."""
    part = sum(each.nbytes for each in module.parameters() if each.requires_grad) / _EXCHANGES / (1 << 20)
    return None if part >= _MOST else max(_LEAST, part)


def _cannot(missing: Sequence[str]) -> Sync:
    raise ValueError(f"no gradient of {', '.join(missing)}")


class Replicas:
    """Gradients are exchanged while the backward pass of the last micro-batch goes on.

    DDP takes the mean over workers. What we want is the sum, since each loss is divided by the weight of the whole
    window already: so each loss counts as many times as there are workers. With a `reduction`, which adds up, once.
    """

    def __init__(
        self,
        module: nn.Module,
        group: dist.ProcessGroup,
        reduction: Reduction | None = None,
        otherwise: Callable[[Sequence[str]], Sync] = _cannot,
    ) -> None:
        """`otherwise`: given the parameters without a gradient in the first window, the way to do without DDP."""
        self.factor = float(dist.get_world_size(group)) if reduction is None else 1.0
        called = _Called(module)
        # Values are the same on all workers: they are drawn by name, or come from one version.
        self._wrapped = DistributedDataParallel(
            called,
            process_group=group,
            broadcast_buffers=False,
            init_sync=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_size(module),
        )
        self._reduction = reduction
        if reduction is not None:
            self._names = {id(parameter): name for name, parameter in module.named_parameters()}
            # torch reads the annotations of a hook, and takes them as they stand.
            self._wrapped.register_comm_hook(None, lambda state, bucket: self._exchange(bucket))
        self._group, self._called, self._looking = group, called, True
        self._otherwise = otherwise
        self._trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
        self._settle()
        self.model: Callable[..., Any] = self._wrapped
        self._nothing = nullcontext()

    def microbatch(self, *, last: bool) -> AbstractContextManager[object]:
        """DDP exchanges in every backward pass, unless it is told not to."""
        # What `no_sync` does, without making a context for it.
        self._wrapped.require_backward_grad_sync = last and not self._looking
        return self._nothing

    def finish(self) -> None:
        """DDP has waited at the end of the backward pass; of the first window it has exchanged nothing yet."""
        if self._looking:
            self._looking = False
            missing = self._missing()
            if missing:
                # Another way, which takes sums, adds up what there is.
                for _, each in self._trained:
                    if each.grad is not None:
                        each.grad /= self.factor
                self._otherwise(missing).finish()
                return
            self._pass()
        if self._reduction is not None:
            self._reduction.finish()

    def _missing(self) -> list[str]:
        """Parameters of which a worker has no gradient, the same on all workers."""
        there = torch.tensor([float(each.grad is not None) for _, each in self._trained])
        dist.all_reduce(there, group=self._group)
        workers = dist.get_world_size(self._group)
        return [
            name for (name, _), number in zip(self._trained, there.tolist(), strict=True) if number < workers
        ]

    def _exchange(self, bucket: GradBucket) -> Future[Tensor]:
        """Instead of DDP's own exchange of a bucket."""
        reduction, flat = self._reduction, bucket.buffer()
        assert reduction is not None
        encoder = reduction.encoder([(self._names[id(each)], each.shape) for each in bucket.parameters()])
        return reduction.put(flat, None if self._settling else encoder)

    def _settle(self) -> None:
        """Let DDP form its buckets for good. It forms them anew after its first backward pass, and where an element
        lies in a bucket decides in which order workers are added up: a resumed run would round otherwise than one that
        has been going on."""
        self._settling = True
        # The second pass is the first with the buckets that stay: they are made before a forward.
        for _ in range(1 if self._reduction is None else 2):
            self._pass()
        self._settling = False
        for parameter in self._called.parameters():
            parameter.grad = None

    def _pass(self) -> None:
        """Add zeros to all gradients, and exchange them."""
        wrapped, called = self._wrapped, self._called
        wrapped.module, called.order_only, wrapped.require_backward_grad_sync = called, True, True
        wrapped().backward()
        called.order_only = False
        # In between it calls the model itself.
        wrapped.module = called.module


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
