"""Only the greatest values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nlpkernel.hookspecs.compressor import Span
from nlpkernel_torchdist.compress.base import Compressing, Stretch
from nlpkernel_torchdist.compress.memory import Owed

#: Values from which a bound is guessed, and the elements from which on that is worth it.
_SAMPLE = 1 << 13
_MANY = 1 << 16


class TopK(Compressing):
    """The greatest `share` of each stretch by size (Aji and Heafield, 2017, "Sparse Communication for Distributed
    Gradient Descent", with exact selection)."""

    name = "topk"

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def _make(self, spans: Sequence[Span], device: torch.device) -> Stretch:
        return _TopK(spans, device, self._share)


class _TopK(Stretch):
    """The wire: places as int32, ascending, then as many float32 values."""

    def __init__(self, spans: Sequence[Span], device: torch.device, share: float) -> None:
        super().__init__(Owed(spans, device))
        self._share = share
        # At least one, so that a value that is not finite is seen by all.
        self._count = min(self.elements, max(1, math.ceil(self.elements * share)))
        self.bytes = 8 * self._count

    def _encode(self, flat: Tensor, scale: Tensor | None, wire: Tensor) -> None:
        total = self.owed.total(flat, scale)
        places = greatest(total, self._count)
        head = 4 * self._count
        wire[:head].view(torch.int32).copy_(places)
        torch.index_select(total, 0, places, out=wire[head:].view(torch.float32))
        total.index_fill_(0, places, 0)
        self.owed.left(scale)

    def _decode(self, wire: Tensor, into: Tensor) -> None:
        head = 4 * self._count
        into.index_add_(0, wire[:head].view(torch.int32), wire[head:].view(torch.float32))


def greatest(values: Tensor, count: int) -> Tensor:
    """Places of the `count` values of the greatest size, ascending; what is no number counts as greater than all.

    On a CPU, most values are passed over by comparing them with a bound guessed from a sample (as in Lin et al., 2018,
    "Deep Gradient Compression"), which is much faster than to order all. Where the guess lets too few through, all are
    ordered after all: the answer is exact either way.
    """
    if values.device.type == "cpu" and values.numel() >= _MANY:
        found = _above(values, _bound(values, count))
        if found.numel() >= count:
            places = values[found].abs().topk(count, sorted=False).indices
            return found[places].sort().values
    return values.abs().topk(count, sorted=False).indices.sort().values


def _bound(values: Tensor, count: int) -> Tensor:
    # An odd distance does not fall in step with rows of a matrix.
    sample = values[:: (values.numel() // _SAMPLE) | 1].abs()
    share = count / values.numel()
    kept = min(sample.numel(), math.ceil(1.5 * share * sample.numel()) + 10)
    return sample.topk(kept, sorted=False).values.min()


def _above(values: Tensor, bound: Tensor) -> Tensor:
    found, before = [], 0
    for chunk in torch.split(values, _MANY):
        # Not `>`: NaN is above.
        places = (chunk.abs() <= bound).logical_not_().nonzero().view(-1)
        found.append(places.add_(before))
        before += chunk.numel()
    return torch.cat(found)
