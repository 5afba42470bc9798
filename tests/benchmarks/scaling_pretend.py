"""A process group in which nothing travels: whatever is exchanged is there at once, as if all had sent the same.

torch's own `fake` one is no use: its all-reduce gives no result, which DistributedDataParallel asks for.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

NAME = "pretended"


def _done(result: Any) -> Any:
    future: Any = Future()
    future.set_result(result)
    return _create_work_from_future(future)


class Pretended(dist.ProcessGroup):
    """One worker of several, the others of which are not there. Sums are its own tensors."""

    def __init__(self, rank: int, world: int) -> None:
        super().__init__(rank, world)
        self._world = world

    def size(self) -> int:
        """Workers."""
        return self._world

    def getBackendName(self) -> str:
        """As it is registered."""
        return NAME

    @property
    def group_name(self) -> str:
        """The name that torch registered it by."""
        return dist.distributed_c10d._world.pg_names[self]

    def allreduce(self, tensors: list[Tensor], options: object = None) -> Any:
        """Leave it."""
        return _done(tensors)

    def broadcast(self, tensors: list[Tensor], options: object = None) -> Any:
        """Leave it."""
        return _done(tensors)

    def barrier(self, options: object = None) -> Any:
        """Nobody to wait for."""
        return _done([torch.ones(1)])

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: object = None) -> Any:
        """Copy my part to all places."""
        for output in outputs[0]:
            output.copy_(inputs[0])
        return _done(outputs)

    def all_gather_single(self, output: Tensor, given: Tensor, options: object = None) -> Any:
        """Copy my part to all places."""
        output.view(self._world, -1).copy_(given.view(1, -1).expand(self._world, -1))
        return _done([output])

    def reduce_scatter_single(self, output: Tensor, given: Tensor, options: object = None) -> Any:
        """Copy my part."""
        output.copy_(given.view(self._world, *output.shape)[self.rank()])
        return _done([output])


def pretend() -> None:
    """Let every process group that is made be such a one. There is nobody else to agree with."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from nlpkernel_torchdist.group import TorchGroup

    dist.Backend.register_backend(
        NAME, lambda store, rank, world, timeout: Pretended(rank, world), devices=["cpu"]
    )
    real = dist.init_process_group

    def init(backend: str, *, store: object, rank: int, world_size: int, timeout: object = None) -> None:
        real(NAME, store=FakeStore(), rank=rank, world_size=world_size)

    dist.init_process_group = init  # type: ignore[assignment]
    TorchGroup.agree = lambda self, fingerprint: None  # type: ignore[method-assign]
