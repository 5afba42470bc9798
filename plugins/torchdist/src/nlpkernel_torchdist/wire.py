"""Tensors of a shape that the receiver does not know, between two workers, without pickle: numbers go first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

#: What a tensor that travels may be. Append only: the place in it is what is sent.
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
_DIMENSIONS = 8
#: Length of a description: the type, the number of dimensions, and their sizes.
WIDTH = 2 + _DIMENSIONS


def describe(tensor: Tensor) -> list[int]:
    """What the receiver must know of a tensor. Raise ValueError for one that cannot travel."""
    if tensor.dtype not in _DTYPES or tensor.dim() > _DIMENSIONS:
        raise ValueError(f"a tensor of {tensor.dtype} with {tensor.dim()} dimensions cannot be sent")
    sizes = [*tensor.shape, *[0] * (_DIMENSIONS - tensor.dim())]
    return [_DTYPES.index(tensor.dtype), tensor.dim(), *sizes]


def empty(description: Sequence[int], device: torch.device) -> Tensor:
    """A tensor as it was described, without values."""
    kind, dimensions, *sizes = description
    return torch.empty(sizes[:dimensions], dtype=_DTYPES[kind], device=device)


def send_numbers(numbers: Sequence[int], to: int, group: ProcessGroup | None, device: torch.device) -> None:
    """Send whole numbers to a worker of the group, which knows how many."""
    dist.send(torch.tensor(numbers, dtype=torch.int64, device=device), group=group, group_dst=to)


def receive_numbers(count: int, source: int, group: ProcessGroup | None, device: torch.device) -> list[int]:
    """Receive `count` whole numbers."""
    numbers = torch.empty(count, dtype=torch.int64, device=device)
    dist.recv(numbers, group=group, group_src=source)
    return [int(each) for each in numbers.tolist()]


def spread(
    tensors: Sequence[Tensor | None],
    count: int,
    source: int,
    group: ProcessGroup | None,
    device: torch.device,
) -> list[Tensor | None]:
    """`count` tensors, or None, of the worker `source` of the group on all of its workers."""
    mine = dist.get_rank(group) == source
    described = torch.zeros(count, 1 + WIDTH, dtype=torch.int64)
    if mine:
        for row, tensor in zip(described, tensors, strict=True):
            if tensor is not None:
                row.copy_(torch.tensor([1, *describe(tensor)]))
    described = described.to(device)
    dist.broadcast(described, group=group, group_src=source)
    found: list[Tensor | None] = []
    for place, (there, *description) in enumerate(described.tolist()):
        tensor = None
        if there:
            given = tensors[place] if mine else None
            tensor = empty(description, device) if given is None else given.contiguous()
            dist.broadcast(tensor, group=group, group_src=source)
        found.append(tensor)
    return found
