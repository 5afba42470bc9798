"""Values as whole numbers of eight bits, with a step for each block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nlpkernel.hookspecs.compressor import Span
from nlpkernel_torchdist.compress.base import Compressing, Stretch, aligned
from nlpkernel_torchdist.compress.memory import Owed, add

#: Elements that are worked on at a time on a CPU, so that they stay in its cache.
CHUNK = 1 << 16
#: A block whose step would be no greater is sent as zeros: 1 / step has to be finite.
_LEAST = torch.finfo(torch.float32).tiny


class Int8(Compressing):
    """Round to the nearest of 255 equally spaced values up to the greatest of each block (as in Dettmers, 2016,
    "8-Bit Approximations for Parallelism in Deep Learning", linear quantisation)."""

    name = "int8"

    def __init__(self, block: int) -> None:
        super().__init__()
        self._block = block

    def _make(self, spans: Sequence[Span], device: torch.device) -> Stretch:
        return _Int8(spans, device, self._block)


class _Int8(Stretch):
    """The wire: a float32 step for each block, then a byte for each value."""

    def __init__(self, spans: Sequence[Span], device: torch.device, block: int) -> None:
        elements = sum(span.elements for span in spans)
        self._block, self._blocks = block, -(-elements // block)
        super().__init__(Owed(spans, device, self._blocks * block))
        self._head = 4 * self._blocks
        self.bytes = aligned(self._head + elements)
        self._at_once = max(1, CHUNK // block) if device.type == "cpu" else self._blocks

    def _encode(self, flat: Tensor, scale: Tensor | None, wire: Tensor) -> None:
        twice = self.owed.begin()
        left = twice.change()
        steps, codes = self._parts(wire)
        for rows, first, last in self._chunks():
            total = left[first : rows.stop * self._block]
            add(flat[first:last], twice.now[first:last], scale, total[: last - first])
            # A step that is no number would have left no number beyond the stretch.
            total[last - first :] = 0
            blocks = total.view(-1, self._block)
            step = blocks.abs().amax(1).div_(127)
            step.masked_fill_(step <= _LEAST, 0)
            inverse = torch.where(step > 0, step.reciprocal(), 0)
            rounded = (blocks * inverse[:, None]).round_()
            steps[rows] = step
            codes[first:last] = rounded.view(-1)[: last - first]
            blocks.addcmul_(rounded, step[:, None], value=-1)
            if scale is not None:
                total.div_(scale)

    def _decode(self, wire: Tensor, into: Tensor) -> None:
        steps, codes = self._parts(wire)
        for rows, first, last in self._chunks():
            whole = (last - first) // self._block
            step, end = steps[rows], first + whole * self._block
            if whole:
                blocks = codes[first:end].view(whole, self._block)
                into[first:end].view(whole, self._block).addcmul_(blocks, step[:whole, None])
            if end < last:
                into[end:last].addcmul_(codes[end:last], step[whole])

    def _parts(self, wire: Tensor) -> tuple[Tensor, Tensor]:
        end = self._head + self.elements
        return wire[: self._head].view(torch.float32), wire[self._head : end].view(torch.int8)

    def _chunks(self) -> Iterator[tuple[slice, int, int]]:
        """Blocks to work on together: which, and their first and last element."""
        for start in range(0, self._blocks, self._at_once):
            stop = min(start + self._at_once, self._blocks)
            yield slice(start, stop), start * self._block, min(stop * self._block, self.elements)
