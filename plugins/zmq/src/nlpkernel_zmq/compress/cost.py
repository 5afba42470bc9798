"""What it takes to encode and to decode, measured before the first window."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import attrs
import torch

from nlpkernel.engine.breakeven import BreakEven
from nlpkernel.hookspecs.compressor import Compressor
from nlpkernel_zmq.compress.pieces import Coders
from nlpkernel_zmq.layout import Parameter, Space

#: How often; the median counts.
_TIMES = 5


@attrs.frozen(kw_only=True)
class Exchanged:
    """What a run exchanges in a window. link: bytes in a second between a worker and a server."""

    parameters: Sequence[Parameter]
    spaces: Sequence[Space]
    chunk: int
    workers: int
    link: float

    def up(self, fresh: Compressor) -> BreakEven:
        """Of gradients: a worker encodes its own, and servers decode those of all workers, each its part. `fresh` is of
        no use afterwards."""
        sent, encode, decode = self._measured(fresh)
        return self._found(fresh.name, sent, encode + decode * self.workers / len(self.spaces), "sends")

    def down(self, fresh: Compressor) -> BreakEven:
        """Of parameters: servers encode, each its part, and decode it as well, and a worker decodes all."""
        sent, encode, decode = self._measured(fresh)
        return self._found(fresh.name, sent, (encode + decode) / len(self.spaces) + decode, "gets")

    def _found(self, name: str, sent: int, seconds: float, verb: str) -> BreakEven:
        plain = sum(space.bytes for space in self.spaces)
        return BreakEven(name=name, plain=plain, sent=sent, seconds=seconds, link=self.link, verb=verb)

    def _measured(self, fresh: Compressor) -> tuple[int, float, float]:
        """Bytes, and the seconds to encode and to decode as many numbers as there are."""
        coders = [Coders(fresh, self.parameters, space, self.chunk) for space in self.spaces]
        greatest, chunk = max(
            ((each, chunk) for each in coders for chunk in range(len(each.pieces))),
            key=lambda place: place[0].pieces[place[1]].elements,
        )
        elements = greatest.pieces[chunk].elements
        values = torch.randn(elements, generator=torch.Generator().manual_seed(0)) * 1e-3
        encodes, decodes = [], []
        for _ in range(_TIMES + 1):
            start = time.perf_counter()
            wire = greatest.encode_values(chunk, values)
            middle = time.perf_counter()
            greatest.values(chunk, wire)
            encodes.append(middle - start)
            decodes.append(time.perf_counter() - middle)
            fresh.settle(False)
        times = sum(piece.elements for each in coders for piece in each.pieces) / elements
        sent = sum(each.bytes for each in coders)
        return sent, times * median(encodes[1:]), times * median(decodes[1:])
