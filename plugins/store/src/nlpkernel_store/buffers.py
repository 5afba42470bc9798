"""The one copy of the state that a save takes: host memory that is allocated once and used again.

Its first use costs the kernel's zeroing of every page; from the second on it is a plain copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from nlpkernel_store.packs import order


class Buffers:
    """Host memory for a list of tensors. It is laid out anew when their number, shapes or types change."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._key: tuple[object, ...] | None = None
        self._views: list[Tensor] = []

    def take(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Copies, dense and on the host, in the same order. They hold until the next call."""
        key = tuple((tensor.shape, tensor.dtype, tensor.device.type) for tensor in tensors)
        if key != self._key:
            self._lay_out(tensors)
            self._key = key
        if not tensors:
            return []
        with torch.no_grad():
            torch._foreach_copy_(self._views, list(tensors), non_blocking=True)
        for device in {tensor.device for tensor in tensors}:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
        return list(self._views)

    def _lay_out(self, tensors: Sequence[Tensor]) -> None:
        """Views in the order of a pack, so that a pack is written from one stretch of memory."""
        sizes = [(tensor.numel() * tensor.itemsize, tensor.itemsize) for tensor in tensors]
        total = sum(size for size, _ in sizes)
        pinned = any(tensor.device.type != "cpu" for tensor in tensors) and torch.accelerator.is_available()
        self._views = []
        if (
            total > self._memory.numel()
            or 2 * total < self._memory.numel()
            or pinned != self._memory.is_pinned()
        ):
            # The old memory goes before the new comes, so that there is one copy at most.
            self._memory = torch.empty(0, dtype=torch.uint8)
            self._memory = torch.empty(total, dtype=torch.uint8, pin_memory=pinned)
        views: dict[int, Tensor] = {}
        position = 0
        for index in order(sizes):
            size = sizes[index][0]
            flat = self._memory[position : position + size]
            views[index] = flat.view(tensors[index].dtype).view(tensors[index].shape)
            position += size
        self._views = [views[index] for index in range(len(tensors))]


def dense(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors themselves where they are dense and on the host, else copies that are."""
    return [tensor.resolve_conj().resolve_neg().to("cpu").contiguous() for tensor in tensors]


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a dense tensor on the host, which has to outlive the view."""
    size = tensor.numel() * tensor.itemsize
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")
