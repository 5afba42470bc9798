"""What data workers divide among themselves: parameters and gradients by torch's `fully_shard`, or the optimizer's
state alone (ZeRO: Rajbhandari et al., 2020, stages 3, 2 and 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import attrs
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from nlpkernel.hookspecs.communicator import Held
from nlpkernel.state import Sharded
from nlpkernel_torchdist.pieces import divide, rows


def shard(
    module: nn.Module,
    blocks: Iterable[str],
    mesh: DeviceMesh,
    *,
    parameters: bool,
    offload: bool,
    unused: bool = False,
) -> FSDPModule:
    """Divide parameters and gradients along `mesh`, a block at a time. `parameters`: those of a block are whole only
    while it computes (stage 3); otherwise from its forward until its backward pass is through (stage 2), or where there
    is none until its forward is. `unused`: a parameter without a gradient counts as one with a gradient of zeros, since
    it may have one on another worker."""
    policy = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu") if offload else OffloadPolicy()
    for path in blocks:
        fully_shard(
            module.get_submodule(path), mesh=mesh, reshard_after_forward=parameters, offload_policy=policy
        )
    fully_shard(module, mesh=mesh, reshard_after_forward=parameters, offload_policy=policy)
    root = cast(FSDPModule, module)
    root.set_reduce_scatter_unused_params(unused)
    divided = _divided(module)
    # Sums, not means: each loss is divided by the weight of the whole window already.
    for each in divided:
        each.set_gradient_divide_factor(1.0)
        each.set_force_sum_reduction_for_comms(True)

    def let_go(*_: object) -> None:
        # No backward pass will do it, and what is whole now would not see the shards change: an update, a version that
        # is taken up, other weights for an evaluation.
        if not torch.is_grad_enabled():
            for each in divided:
                each.reshard()

    module.register_forward_hook(let_go)
    return root


def settle(module: nn.Module) -> None:
    """After allocation: bring the shards where they stay. torch pads an uneven one, and moves it for that, when it
    first gathers it."""
    for each in _divided(module):
        each.unshard()
        each.reshard()


def _divided(module: nn.Module) -> list[FSDPModule]:
    return [each for each in module.modules() if isinstance(each, FSDPModule)]


class Shards:
    """Gradients are reduced to the shards of each worker, block by block in the backward pass.

    every: after each micro-batch. Otherwise they are whole until the last one, which spares the exchanges.
    """

    factor = 1.0

    def __init__(self, module: FSDPModule, model: Callable[..., Any], *, every: bool) -> None:
        self._module, self.model, self._every = module, model, every
        # Collected once: torch walks through all layers of the model for them.
        self._divided = _divided(cast(nn.Module, module))
        self._reduces: bool | None = None
        self._nothing = nullcontext()

    def microbatch(self, *, last: bool) -> AbstractContextManager[object]:
        """Say whether to reduce."""
        reduces = last or self._every
        if reduces is not self._reduces:
            self._reduces = reduces
            for each in self._divided:
                each.set_requires_gradient_sync(reduces, recurse=False)
        self._module.set_is_last_backward(last)
        return self._nothing

    def finish(self) -> None:
        """The shards are reduced at the end of the backward pass."""


class Slices:
    """Stage 1: every worker has all parameters and gradients, and steps its part of them.

    Parameters of one type lie in one buffer, one after the other, which is cut into parts of the same size, between two
    rows of a parameter, or between two parameters where the optimizer needs whole ones. After an update each worker
    sends its part to the others. torch's ZeroRedundancyOptimizer divides whole parameters only, makes the optimizer
    itself from a class, and pickles its state.
    """

    def __init__(self, group: dist.ProcessGroup, *, whole: bool) -> None:
        self._group, self._whole = group, whole
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._flat: list[tuple[Tensor, list[int]]] = []
        self._mine: list[tuple[Tensor, Tensor, int, int]] = []

    def settle(self, held: Sequence[Held]) -> list[Held]:
        """Move the parameters into buffers; what this worker steps of them."""
        mine: list[Held] = []
        for kind in dict.fromkeys(each.tensor.dtype for each in held):
            mine += self._settle([each for each in held if each.tensor.dtype == kind])
        return mine

    def _settle(self, held: Sequence[Held]) -> list[Held]:
        tensors = [each.tensor for each in held]
        flat = torch.empty(
            sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype, device=tensors[0].device
        )
        before = 0
        for tensor in tensors:
            view = flat[before : before + tensor.numel()].view(tensor.shape)
            with torch.no_grad():
                view.copy_(tensor)
            tensor.data = view
            before += tensor.numel()
        parts = divide([tuple(tensor.shape) for tensor in tensors], self._size, whole=self._whole)
        sizes = [sum((stop - start) * _row(tensors[index]) for index, start, stop in part) for part in parts]
        self._flat.append((flat, sizes))
        mine: list[Held] = []
        for index, start, stop in parts[self._rank]:
            each, tensor = held[index], tensors[index]
            part = nn.Parameter(tensor.detach()[start:stop] if tensor.ndim else tensor.detach())
            self._mine.append((part, tensor, start, stop))
            kind = rows(each.kind, tensor.shape, start, stop) if tensor.ndim else Sharded.whole(())
            mine.append(attrs.evolve(each, tensor=part, kind=kind, first=each.first and start == 0))
        return mine

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step this worker's part, and make the parameters whole again on all."""
        for part, tensor, start, stop in self._mine:
            gradient = tensor.grad
            part.grad = None if gradient is None else gradient[start:stop] if tensor.ndim else gradient
        optimizer.step()
        pending = []
        for flat, sizes in self._flat:
            for owner, part in enumerate(torch.split(flat, sizes)):
                if part.numel():
                    pending.append(dist.broadcast(part, group=self._group, group_src=owner, async_op=True))
        for part, *_ in self._mine:
            part.grad = None
        for work in pending:
            work.wait()


def _row(tensor: Tensor) -> int:
    return tensor.numel() // tensor.shape[0] if tensor.ndim and tensor.shape[0] else 1
