"""A worker's gradients on their way to the shards: copied as backward makes them, kept until no shard can need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import torch
from torch import Tensor

from nlpkernel_zmq.layout import Parameter, Space
from nlpkernel_zmq.regions import places, views_in

#: Tells a shard of a piece: (shard, chunk).
Tell = Callable[[int, int], None]


@attrs.define
class Pushed:
    """A share as it was pushed, to be pushed again. round: its round, or the window where each is pushed for itself.
    region: bytes of all shards' spaces, one after the other, in a slot (-1: in none), and at byte `place` of the shared
    memory (-1: not in it). told: by shard, the pieces that are complete. wire: by shard and piece, what it was encoded
    to, so that what is pushed again is the same. order: the number of the update that it became."""

    round: int
    share: int
    of: int
    step: int
    region: Tensor
    slot: int
    place: int
    told: list[set[int]]
    wire: dict[tuple[int, int], Tensor] = attrs.field(factory=dict)
    empty: bool = False
    absent: tuple[int, ...] = ()
    factor: float = 1.0
    scale: float = 1.0
    sums: dict[str, float] = attrs.field(factory=dict)
    ended: bool = False
    order: int | None = None


class Gradients:
    """A worker's gradient of one share at a time. In backward each parameter's gradient is copied to its places, and
    `tell` hears of each piece that is complete, in the order in which backward makes them."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        tensors: Sequence[Tensor],
        spaces: Sequence[Space],
        chunk: int,
        tell: Tell,
    ) -> None:
        self._parameters, self._tensors, self._spaces = parameters, tensors, spaces
        self._chunk, self._tell = chunk, tell
        self._bases, self.size = places(spaces)
        self._kinds = [tensor.dtype for tensor in tensors]
        self._views: dict[int, list[list[tuple[Tensor, int, int]]]] = {}
        self._touched, self._counts = self._pieces()
        self._left: list[list[int]] = []
        self._missing: set[int] = set()
        self._now: list[list[tuple[Tensor, int, int]]] = []
        self._watching = False
        for number, tensor in enumerate(tensors):
            tensor.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]

    def begin(self, region: Tensor) -> None:
        """A share is about to be computed into a region of `size` bytes."""
        self._now = self._views_of(region)
        self._left = [list(each) for each in self._counts]
        self._missing = set(range(len(self._tensors)))

    def watch(self, watching: bool) -> None:
        """Whether the backward pass at hand is the last of the share."""
        self._watching = watching

    def finish(self) -> tuple[int, ...]:
        """Take what backward left; the numbers of parameters that have no gradient."""
        absent = []
        for number in sorted(self._missing, reverse=True):
            gradient = self._tensors[number].grad
            if gradient is None:
                absent.append(number)
                for place, _, _ in self._now[number]:
                    place.zero_()
                self._told(number)
            else:
                self._take(number, gradient)
        self._missing.clear()
        return tuple(reversed(absent))

    def base(self, shard: int) -> int:
        """The byte at which a shard's space begins in a region."""
        return self._bases[shard]

    def drop(self, region: Tensor) -> None:
        """A region is not used any more."""
        self._views.pop(region.data_ptr(), None)

    def part(self, region: Tensor, shard: int) -> Tensor:
        """The bytes of a shard's space in a region."""
        start = self._bases[shard]
        return region[start : start + self._spaces[shard].bytes]

    def write(self, region: Tensor) -> None:
        """Put the parameters themselves into a region."""
        with torch.no_grad():
            for tensor, own in zip(self._tensors, self._views_of(region), strict=True):
                flat = tensor.detach().reshape(-1)
                for place, start, stop in own:
                    place.copy_(flat[start:stop])

    def fill(self, parts: Sequence[Tensor], values: Sequence[Tensor] | None = None) -> None:
        """Put the parameters, or other values for them, into the bytes of each shard's space."""
        with torch.no_grad():
            for part, space in zip(parts, self._spaces, strict=True):
                for stretch, view in zip(space.stretches, views_in(part, space, self._kinds), strict=True):
                    own = (self._tensors if values is None else values)[stretch.parameter]
                    view.copy_(own.detach().reshape(-1)[stretch.start : stretch.stop])

    def read(self, parts: Sequence[Tensor]) -> None:
        """Take the parameters up from the bytes of each shard's space."""
        with torch.no_grad():
            for part, space in zip(parts, self._spaces, strict=True):
                for stretch, view in zip(space.stretches, views_in(part, space, self._kinds), strict=True):
                    own = self._tensors[stretch.parameter].detach().view(-1)
                    own[stretch.start : stretch.stop].copy_(view)

    def _hook(self, number: int) -> Callable[[Tensor], None]:
        def arrived(tensor: Tensor) -> None:
            if self._watching and number in self._missing and tensor.grad is not None:
                self._missing.discard(number)
                self._take(number, tensor.grad)

        return arrived

    def _take(self, number: int, gradient: Tensor) -> None:
        flat = gradient.detach().reshape(-1)
        for place, start, stop in self._now[number]:
            place.copy_(flat[start:stop])
        self._told(number)

    def _told(self, number: int) -> None:
        for shard, chunk in self._touched[number]:
            left = self._left[shard]
            left[chunk] -= 1
            if not left[chunk]:
                self._tell(shard, chunk)

    def _views_of(self, region: Tensor) -> list[list[tuple[Tensor, int, int]]]:
        key = region.data_ptr()
        if key not in self._views:
            views: list[list[tuple[Tensor, int, int]]] = [[] for _ in self._tensors]
            for shard, space in enumerate(self._spaces):
                part = self.part(region, shard)
                for stretch, view in zip(space.stretches, views_in(part, space, self._kinds), strict=True):
                    views[stretch.parameter].append((view, stretch.start, stretch.stop))
            self._views[key] = views
        return self._views[key]

    def _pieces(self) -> tuple[list[list[tuple[int, int]]], list[list[int]]]:
        """By parameter, the pieces that it lies in; by shard and piece, how many parameters do."""
        touched: list[list[tuple[int, int]]] = [[] for _ in self._tensors]
        counts = [[0] * space.chunks(self._chunk) for space in self._spaces]
        for shard, space in enumerate(self._spaces):
            for stretch in space.stretches:
                end = stretch.at + stretch.elements * self._parameters[stretch.parameter].itemsize
                for chunk in range(stretch.at // self._chunk, -(-end // self._chunk)):
                    touched[stretch.parameter].append((shard, chunk))
                    counts[shard][chunk] += 1
        return touched, counts
