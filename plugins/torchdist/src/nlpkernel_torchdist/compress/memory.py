"""What compressors keep from one exchange to the next, so that a window which is left out leaves no trace in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from nlpkernel.hookspecs.compressor import Span


class Twice:
    """A tensor that an exchange changes and `settle` keeps or takes back."""

    def __init__(self, value: Tensor) -> None:
        self.now = value
        self._next: Tensor | None = None
        self._changed = False

    def change(self) -> Tensor:
        """Where the exchange writes the next value, all of it."""
        if self._next is None:
            self._next = torch.zeros_like(self.now)
        self._changed = True
        return self._next

    def settle(self, bad: Tensor | bool) -> None:
        """Keep the next value, or where `bad` the one before."""
        if not self._changed or bad is True:
            self._changed = False
            return
        assert self._next is not None
        if isinstance(bad, Tensor):
            torch.where(bad != 0, self.now, self._next, out=self.now)
        else:
            self.now, self._next = self._next, self.now
        self._changed = False


class Owed:
    """What a stretch has not sent yet, one value for each of its elements, in float32.

    padded: elements of the memory, some of them beyond the stretch and always 0.
    """

    def __init__(self, spans: Sequence[Span], device: torch.device, padded: int | None = None) -> None:
        self.spans, self.device = tuple(spans), device
        self.elements = sum(span.elements for span in spans)
        self._padded = self.elements if padded is None else padded
        self.twice: Twice | None = None

    def begin(self) -> Twice:
        """Take the memory, unless it is there."""
        if self.twice is None:
            self.twice = Twice(torch.zeros(self._padded, dtype=torch.float32, device=self.device))
        return self.twice

    def total(self, flat: Tensor, scale: Tensor | None) -> Tensor:
        """What is to be encoded: `flat` and what is owed, in memory where the encoder leaves what it did not send."""
        twice = self.begin()
        total = twice.change()
        add(flat, twice.now[: self.elements], scale, total[: self.elements])
        return total

    def left(self, scale: Tensor | None) -> None:
        """The encoder has done so: keep it without the scale."""
        if scale is not None:
            self.begin().change().div_(scale)

    def parts(self) -> Iterator[tuple[Span, Tensor]]:
        """What is owed, by span."""
        if self.twice is not None:
            flats = torch.split(self.twice.now[: self.elements], [span.elements for span in self.spans])
            yield from zip(self.spans, flats, strict=True)


def add(flat: Tensor, owed: Tensor, scale: Tensor | None, out: Tensor) -> None:
    """out = flat + owed * scale."""
    if scale is None:
        torch.add(flat, owed, out=out)
    else:
        torch.addcmul(flat.to(out.dtype), owed, scale, out=out)


class Debts:
    """What is owed to parameters for which no encoder has come yet."""

    def __init__(self) -> None:
        self._by_name: dict[str, Tensor] = {}

    def load(self, owed: Mapping[str, Tensor]) -> None:
        """Only these."""
        self._by_name = dict(owed)

    def names(self) -> set[str]:
        """Of the parameters."""
        return set(self._by_name)

    def hand_over(self, owed: Owed) -> None:
        """Let a new stretch owe it. Raise ValueError where a parameter has another shape."""
        if not any(span.name in self._by_name for span in owed.spans):
            return
        owed.begin()
        for span, into in owed.parts():
            debt = self._by_name.get(span.name)
            if debt is None:
                continue
            if tuple(debt.shape) != span.shape:
                raise ValueError(
                    f"{span.name} has the shape {span.shape}, and what is owed {tuple(debt.shape)}"
                )
            into.copy_(debt.reshape(-1)[span.start : span.stop])

    def with_those_of(self, stretches: Sequence[Owed]) -> dict[str, Tensor]:
        """Everything that is owed, by parameter; where a stretch holds a whole one it is a view of its memory."""
        found = dict(self._by_name)
        fresh: set[str] = set()
        for owed in stretches:
            for span, part in owed.parts():
                if span == Span.whole(span.name, span.shape):
                    found[span.name] = part.view(span.shape)
                    continue
                if span.name not in fresh:
                    whole = part.new_zeros(span.shape)
                    found[span.name] = whole.copy_(found[span.name]) if span.name in found else whole
                    fresh.add(span.name)
                found[span.name].view(-1)[span.start : span.stop] = part
        return found

    def forget(self, owed: Owed) -> None:
        """A stretch that owes whole parameters owes what was waiting for it."""
        for span in owed.spans:
            if span == Span.whole(span.name, span.shape):
                self._by_name.pop(span.name, None)
