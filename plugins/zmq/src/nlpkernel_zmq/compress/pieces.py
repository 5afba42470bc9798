"""The pieces of a shard's space as the stretches of parameters that a compressor knows, and their encoders.

A worker and a shard make them alike from the same list of parameters. What is encoded is made of the numbers alone: a
space has bytes between its parameters that belong to none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.compressor import Compressor, Encoder, Span
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.layout import Parameter, Space
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import dtype_of, view_of

_CPU = torch.device("cpu")


class Piece:
    """One piece of a space. spans: what of which parameters lies in it."""

    def __init__(self, spans: Sequence[Span], places: Sequence[tuple[int, int, torch.dtype]]) -> None:
        self.spans = tuple(spans)
        self.elements = sum(span.elements for span in spans)
        self._places = tuple(places)

    def read(self, data: Tensor, into: Tensor) -> None:
        """Take the numbers out of the bytes of the piece."""
        for number, place in self._numbers(data, into):
            number.copy_(place)

    def write(self, values: Tensor, data: Tensor) -> None:
        """Put numbers into the bytes of the piece, in the types of the parameters."""
        for number, place in self._numbers(data, values):
            place.copy_(number)

    def parts(self, values: Tensor) -> Iterator[tuple[Span, Tensor]]:
        """The numbers of each span."""
        flats = torch.split(values, [span.elements for span in self.spans])
        return zip(self.spans, flats, strict=True)

    def _numbers(self, data: Tensor, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for (_, number), (start, stop, kind) in zip(self.parts(values), self._places, strict=True):
            yield number, data[start:stop].view(kind)


def pieces(parameters: Sequence[Parameter], space: Space, chunk: int) -> list[Piece]:
    """Those of a space that is cut every `chunk` bytes. Raise PlanError (ZPS016) for complex numbers."""
    made = []
    for low in range(0, space.bytes, chunk):
        spans, places = [], []
        for stretch in space.stretches:
            parameter = parameters[stretch.parameter]
            kind, size = dtype_of(parameter.dtype), parameter.itemsize
            if not kind.is_floating_point:
                message = f"{parameter.name} is of {parameter.dtype}, which no compressor takes"
                raise fail(PlanError, "ZPS016", message, owner=OWNER, hint="leave compressor and down out")
            begin = max(low, stretch.at)
            end = min(low + chunk, space.bytes, stretch.at + stretch.elements * size)
            if begin < end:
                start = stretch.start + (begin - stretch.at) // size
                spans.append(Span(parameter.name, parameter.shape, start, start + (end - begin) // size))
                places.append((begin - low, end - low, kind))
        made.append(Piece(spans, places))
    return made


class Coders:
    """Encoders of all pieces of one space. Raise PlanError (ZPS016) where the compressor needs whole parameters, and a
    piece has only a part of one."""

    def __init__(
        self, compressor: Compressor, parameters: Sequence[Parameter], space: Space, chunk: int
    ) -> None:
        self.name = compressor.name
        self._chunk, self._bytes = chunk, space.bytes
        self.pieces = pieces(parameters, space, chunk)
        if compressor.need == "whole_tensor":
            for piece in self.pieces:
                _is_whole(compressor.name, piece)
        self._encoders: list[Encoder] = [compressor.encoder(piece.spans, _CPU) for piece in self.pieces]
        self._values = torch.empty(max((piece.elements for piece in self.pieces), default=0))

    @property
    def bytes(self) -> int:
        """Of all pieces, encoded."""
        return sum(encoder.bytes for encoder in self._encoders)

    def encode(self, chunk: int, data: Tensor, scale: Tensor | None = None) -> Tensor:
        """Encode the bytes of a piece. The result is kept by nobody else."""
        values = self._values[: self.pieces[chunk].elements]
        self.pieces[chunk].read(data, values)
        return self.encode_values(chunk, values, scale)

    def encode_values(self, chunk: int, values: Tensor, scale: Tensor | None = None) -> Tensor:
        """Encode the numbers of a piece."""
        return self._encoders[chunk].encode(values, scale).clone()

    def values(self, chunk: int, wire: Tensor) -> Tensor:
        """The numbers of what was encoded, in float32."""
        found = torch.zeros(self.pieces[chunk].elements)
        self._encoders[chunk].decode(wire, found)
        return found

    def decode(self, chunk: int, payload: Any) -> Tensor:
        """The numbers of a payload from elsewhere. Raise BadFrame where the compressor does not make such."""
        size = self._encoders[chunk].bytes
        if payload is None or len(payload) != size:
            came = 0 if payload is None else len(payload)
            raise BadFrame("field", f"{came} bytes of {self.name}, where a piece takes {size}")
        try:
            # A copy, since a frame begins anywhere.
            return self.values(chunk, view_of(payload, torch.uint8, size).clone())
        except (ValueError, TypeError, RuntimeError, IndexError) as error:
            raise BadFrame("field", f"it is nothing that {self.name} has made: {error}") from error

    def decode_bytes(self, chunk: int, payload: Any) -> Tensor:
        """The same as the bytes of the piece."""
        low = chunk * self._chunk
        data = torch.zeros(min(self._chunk, self._bytes - low), dtype=torch.uint8)
        self.pieces[chunk].write(self.decode(chunk, payload), data)
        return data


def _is_whole(name: str, piece: Piece) -> None:
    for span in piece.spans:
        if span != Span.whole(span.name, span.shape):
            raise fail(
                PlanError,
                "ZPS016",
                f"{name} needs whole parameters, and {span.name} does not lie in one piece as a whole",
                owner=OWNER,
                hint="a greater chunk, or a compressor that takes single values (bf16, int8, topk)",
            )
