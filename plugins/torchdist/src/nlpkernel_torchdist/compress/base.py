"""What all compressors here have in common: their encoders, and what those owe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from nlpkernel.hookspecs.compressor import Span
from nlpkernel_torchdist.compress.memory import Debts, Owed


class Stretch:
    """See `nlpkernel.hookspecs.compressor.Encoder`. `owed` is the memory of the error feedback."""

    bytes: int
    sums: tuple[int, ...] = ()

    def __init__(self, owed: Owed) -> None:
        self.owed = owed
        self.elements = owed.elements
        self._wire: Tensor | None = None

    def encode(self, flat: Tensor, scale: Tensor | None = None) -> Tensor:
        """Encode into the wire, which is used again."""
        if self._wire is None:
            self._wire = torch.empty(self.bytes, dtype=torch.uint8, device=self.owed.device)
        with torch.no_grad():
            self._encode(flat.reshape(-1), scale, self._wire)
        return self._wire

    def decode(self, wire: Tensor, into: Tensor) -> None:
        """Add to `into`."""
        if wire.dtype != torch.uint8 or wire.numel() != self.bytes:
            raise ValueError(f"{self.bytes} bytes were to come, and {wire.numel()} of {wire.dtype} did")
        with torch.no_grad():
            self._decode(wire.view(-1), into)

    def rounds(self, flat: Tensor, scale: Tensor | None = None) -> Iterator[Tensor]:
        """Only where the compressor is summable."""
        raise TypeError("what this compressor encodes cannot be added up on its way")

    def settle(self, bad: Tensor | bool) -> None:
        """Keep what the window changed, or take it back."""
        if self.owed.twice is not None:
            self.owed.twice.settle(bad)

    def _encode(self, flat: Tensor, scale: Tensor | None, wire: Tensor) -> None:
        raise NotImplementedError

    def _decode(self, wire: Tensor, into: Tensor) -> None:
        raise NotImplementedError


class Compressing:
    """See `nlpkernel.hookspecs.compressor.Compressor`."""

    name: str
    summable = False
    need: Literal["elementwise", "whole_tensor"] = "elementwise"

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._debts = Debts()

    def encoder(self, spans: Sequence[Span], device: torch.device) -> Stretch:
        """Make one, and let it owe what is owed to its parameters."""
        self._leave(spans)
        made = self._make(spans, device)
        self._debts.hand_over(made.owed)
        self._debts.forget(made.owed)
        self._stretches.append(made)
        return made

    def settle(self, bad: Tensor | bool) -> None:
        """Each stretch."""
        for stretch in self._stretches:
            stretch.settle(bad)

    def owed(self) -> Mapping[str, Tensor]:
        """Of all stretches, and what none has come for yet."""
        return self._debts.with_those_of([stretch.owed for stretch in self._stretches])

    def factors(self) -> Mapping[str, Tensor]:
        """None."""
        return {}

    def load(self, owed: Mapping[str, Tensor], factors: Mapping[str, Tensor]) -> None:
        """Let each stretch owe its part of it."""
        self._debts.load(owed)
        for stretch in self._stretches:
            stretch.owed.twice = None
            self._debts.hand_over(stretch.owed)
        for stretch in self._stretches:
            self._debts.forget(stretch.owed)

    def _make(self, spans: Sequence[Span], device: torch.device) -> Stretch:
        raise NotImplementedError

    def _leave(self, spans: Sequence[Span]) -> None:
        """Take from other stretches what these spans are of."""
        overlapping = [each for each in self._stretches if _overlap(each.owed.spans, spans)]
        if overlapping:
            self._debts.load(self._debts.with_those_of([each.owed for each in overlapping]))
            self._stretches = [each for each in self._stretches if each not in overlapping]


def aligned(bytes: int) -> int:
    """The next multiple of 4, so that what comes after another wire can be read as float32."""
    return -(-bytes // 4) * 4


def _overlap(some: Sequence[Span], others: Sequence[Span]) -> bool:
    held: dict[str, list[Span]] = {}
    for span in some:
        held.setdefault(span.name, []).append(span)
    return any(
        span.start < other.stop and other.start < span.stop
        for span in others
        for other in held.get(span.name, ())
    )
