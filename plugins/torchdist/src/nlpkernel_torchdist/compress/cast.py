"""Values as floats of half the size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nlpkernel.hookspecs.compressor import Span
from nlpkernel_torchdist.compress.base import Compressing, Stretch, aligned
from nlpkernel_torchdist.compress.memory import Owed, add


class Cast(Compressing):
    """Round to a smaller type, which can be added up as it is. Nothing is owed; what another compressor owed before is
    paid in the next window."""

    summable = True

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.name, self._dtype = name, dtype

    def _make(self, spans: Sequence[Span], device: torch.device) -> Stretch:
        return _Cast(Owed(spans, device), self._dtype)


class _Cast(Stretch):
    def __init__(self, owed: Owed, dtype: torch.dtype) -> None:
        super().__init__(owed)
        self._dtype = dtype
        self._size = self.elements * dtype.itemsize
        self.sums = (self._size,)
        self.bytes = aligned(self._size)
        self._half: Tensor | None = None

    def rounds(self, flat: Tensor, scale: Tensor | None = None) -> Iterator[Tensor]:
        """One."""
        if self._half is None:
            self._half = torch.empty(self.elements, dtype=self._dtype, device=self.owed.device)
        self._half.copy_(self._paying(flat, scale))
        yield self._half
        flat.copy_(self._half)

    def _encode(self, flat: Tensor, scale: Tensor | None, wire: Tensor) -> None:
        wire[: self._size].view(self._dtype).copy_(self._paying(flat, scale))

    def _decode(self, wire: Tensor, into: Tensor) -> None:
        into.add_(wire[: self._size].view(self._dtype))

    def _paying(self, flat: Tensor, scale: Tensor | None) -> Tensor:
        twice = self.owed.twice
        if twice is None:
            return flat
        total = torch.empty_like(twice.now)
        add(flat, twice.now, scale, total)
        twice.change().zero_()
        return total
