"""Plain data and counts between workers. Nothing is pickled: plain data travels as msgpack in tensors of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import torch
import torch.distributed as dist
from torch import Tensor

#: Bytes of the first message, its length included; most of what is shared fits.
_FIRST = 512
_LENGTH = 8


def share(value: Any, group: dist.ProcessGroup | None = None) -> Any:
    """The first worker's plain data, on all workers of a group."""
    first = dist.get_rank(group) == 0
    content = msgpack.packb(value) if first else b""
    head = len(content).to_bytes(_LENGTH, "little") + content[: _FIRST - _LENGTH]
    buffer = torch.frombuffer(bytearray(head.ljust(_FIRST, b"\0")), dtype=torch.uint8)
    dist.broadcast(buffer, group=group, group_src=0)
    if first and len(content) <= _FIRST - _LENGTH:
        return value
    read = buffer.numpy().tobytes()
    size = int.from_bytes(read[:_LENGTH], "little")
    held = read[_LENGTH : _LENGTH + size]
    if size > len(held):
        rest = torch.zeros(size - len(held), dtype=torch.uint8)
        if first:
            rest.copy_(torch.frombuffer(bytearray(content[len(held) :]), dtype=torch.uint8))
        dist.broadcast(rest, group=group, group_src=0)
        held += rest.numpy().tobytes()
    return value if first else msgpack.unpackb(held, strict_map_key=False)


def merge(counts: Mapping[str, Tensor], group: dist.ProcessGroup | None = None) -> dict[str, Tensor]:
    """Counts summed over the workers of a group, which all give the same names and shapes: one exchange for each type
    of numbers among them."""
    merged: dict[str, Tensor] = {}
    for kind in sorted({value.dtype for value in counts.values()}, key=str):
        names = sorted(name for name, value in counts.items() if value.dtype == kind)
        flat = torch.cat([counts[name].reshape(-1) for name in names])
        dist.all_reduce(flat, group=group)
        parts = torch.split(flat, [counts[name].numel() for name in names])
        merged |= {name: part.view(counts[name].shape) for name, part in zip(names, parts, strict=True)}
    return {name: merged[name] for name in counts}
