"""Gradients of one worker on their way up, encoded. What an encoder leaves out is owed, by the worker, to the next
window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nlpkernel.hookspecs.compressor import Compressor
from nlpkernel_zmq.compress.pieces import Coders
from nlpkernel_zmq.layout import Parameter, Space


class Up:
    """See the module. scale: what the gradients of this window are multiplied by."""

    def __init__(
        self, compressor: Compressor, parameters: Sequence[Parameter], spaces: Sequence[Space], chunk: int
    ) -> None:
        self.name, self.scale = compressor.name, 1.0
        self._compressor, self._parameters = compressor, parameters
        self._coders = [Coders(compressor, parameters, space, chunk) for space in spaces]

    @property
    def bytes(self) -> int:
        """Of a whole share."""
        return sum(coders.bytes for coders in self._coders)

    def encode(self, shard: int, chunk: int, data: Tensor) -> Tensor:
        """Encode the bytes of a piece, once in a window."""
        scale = None if self.scale == 1.0 else torch.tensor(self.scale)
        return self._coders[shard].encode(chunk, data, scale)

    def without_gradient(
        self, absent: Sequence[int], wire: Mapping[tuple[int, int], Tensor]
    ) -> tuple[int, ...]:
        """Of parameters that have no gradient in a window, those that nothing was owed to either."""
        left = {self._parameters[number].name: number for number in absent}
        for (shard, chunk), encoded in wire.items():
            coders = self._coders[shard]
            if any(span.name in left for span in coders.pieces[chunk].spans):
                for span, values in coders.pieces[chunk].parts(coders.values(chunk, encoded)):
                    if values.any():
                        left.pop(span.name, None)
        return tuple(left.values())

    def settle(self, bad: bool) -> None:
        """After each update: was it left out?"""
        self._compressor.settle(bad)
