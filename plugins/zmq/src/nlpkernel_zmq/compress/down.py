"""Parameters on their way down: a shard knows what all workers have, and sends what they are to add to it.

What the compressor leaves out stays in the difference, and so comes later. Nothing else is owed, and all workers have
the same numbers, those of the shard's `values`, as long as they have added all of it, in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.compressor import Compressor
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.compress.pieces import Coders
from nlpkernel_zmq.layout import Parameter, Space


class Copy:
    """The parameters of one shard as workers have them: on a worker, and on the shard. Raise PlanError (ZPS016) where
    the compressor needs whole parameters: what it keeps of them would have to be the same everywhere."""

    def __init__(
        self, compressor: Compressor, parameters: Sequence[Parameter], space: Space, chunk: int
    ) -> None:
        if compressor.need != "elementwise":
            raise fail(
                PlanError,
                "ZPS016",
                f"{compressor.name} is not for parameters on their way down",
                owner=OWNER,
                hint="take bf16, fp16, int8 or topk",
            )
        self.name, self._compressor = compressor.name, compressor
        self._coders = Coders(compressor, parameters, space, chunk)
        self._chunk = chunk
        #: Bytes of the space.
        self.values = torch.zeros(space.bytes, dtype=torch.uint8)

    @property
    def bytes(self) -> int:
        """Of all pieces, encoded."""
        return self._coders.bytes

    def piece(self, values: Tensor, chunk: int) -> Tensor:
        """The bytes of a piece of a space."""
        return values[chunk * self._chunk : (chunk + 1) * self._chunk]

    def add(self, chunk: int, payload: Any) -> None:
        """Take up what has come for a piece. Raise BadFrame where the compressor does not make such."""
        self._add(chunk, self._coders.decode(chunk, payload))

    def advance(self, parameters: Tensor) -> list[Tensor | None]:
        """Encode what leads to these, piece by piece, and take it up as workers do. None of a piece which cannot be
        encoded (a difference beyond the numbers of fp16): its values are taken as they are."""
        made: list[Tensor | None] = []
        for chunk, piece in enumerate(self._coders.pieces):
            new, old = torch.empty(piece.elements), torch.empty(piece.elements)
            piece.read(self.piece(parameters, chunk), new)
            piece.read(self.piece(self.values, chunk), old)
            wire = self._coders.encode_values(chunk, new - old)
            found = self._coders.values(chunk, wire)
            if found.isfinite().all():
                self._add(chunk, found)
                made.append(wire)
            else:
                self.piece(self.values, chunk).copy_(self.piece(parameters, chunk))
                made.append(None)
        # Nothing is owed: it is in the next difference.
        self._compressor.settle(True)
        return made

    def _add(self, chunk: int, change: Tensor) -> None:
        piece, data = self._coders.pieces[chunk], self.piece(self.values, chunk)
        old = torch.empty(piece.elements)
        piece.read(data, old)
        piece.write(old + change, data)
