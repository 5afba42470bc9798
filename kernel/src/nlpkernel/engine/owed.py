"""What compressors keep, in versions: by parameter, so that another layout can take it up.

What is owed is a sum over workers. The same layout gives every worker its own addend back; another one gives the sum to
the first data worker, so that nothing is lost. A parameter that is cut along tensor is saved in the size of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
from torch import Tensor

from nlpkernel.hookspecs.communicator import Held
from nlpkernel.hookspecs.compressor import Compressor
from nlpkernel.state import Addends, Leaf, PerWorker, Sharded, Spread, Summed, local

_OWED, _FACTOR, _LAYOUT = "residual/", "factor/", "residual-layout"


class Grid(Protocol):
    """How the workers of a run are laid out: their number along each axis, and where each stands."""

    @property
    def data(self) -> int:
        """Workers along data."""

    @property
    def tensor(self) -> int:
        """Workers along tensor."""

    @property
    def pipe(self) -> int:
        """Workers along pipe."""

    def coordinates(self, rank: int) -> Mapping[str, int]:
        """Where a worker stands: "data" and others."""


@attrs.frozen(eq=False)
class Books:
    """What a worker has to know to keep these. alone: names of parameters of which, along tensor and pipe, no other
    worker saves a copy. cut: those that are cut along tensor."""

    layout: Grid
    rank: int
    held: Mapping[str, Held]
    alone: frozenset[str]
    cut: frozenset[str]

    @property
    def data(self) -> int:
        """Which data worker this is."""
        return self.layout.coordinates(self.rank)["data"]

    def leaves(self, compressor: Compressor) -> Iterator[tuple[str, Leaf]]:
        """State of this worker's compressor."""
        yield _LAYOUT, Leaf(_sizes(self.layout))
        for name, tensor in compressor.owed().items():
            if name in self.alone:
                yield _OWED + name, Leaf(_whole(tensor, self.held[name]), Summed(self.rank))
        for name, tensor in compressor.factors().items():
            if name in self.cut:
                yield _FACTOR + name, Leaf(tensor, PerWorker(self.rank))
            elif name in self.alone and self.data == 0:
                yield _FACTOR + name, Leaf(tensor, Sharded.whole(tensor.shape))

    def take_up(self, compressor: Compressor, state: Mapping[str, Any]) -> None:
        """Give the compressor of this worker its part of a version's state."""
        same = state.get(_LAYOUT) == _sizes(self.layout)
        owed: dict[str, Tensor] = {}
        factors: dict[str, Tensor] = {}
        for name, each in self.held.items():
            addends, factor = state.get(_OWED + name), state.get(_FACTOR + name)
            if isinstance(addends, Addends) and (own := self._own(addends, same=same)) is not None:
                owed[name] = local(own, each.kind).to(each.tensor.device)
            if factor is not None:
                factors[name] = factor.whole() if isinstance(factor, Spread) else factor
        compressor.load(owed, factors)

    def _own(self, addends: Addends, *, same: bool) -> Tensor | None:
        if not same:
            return addends.total() if self.data == 0 else None
        if self.rank in addends.by_worker:
            return addends.by_worker[self.rank]
        # Where workers have copies, one of them has saved it.
        for worker in sorted(addends.by_worker):
            if self.layout.coordinates(worker)["data"] == self.data:
                return addends.by_worker[worker]
        return None


def total(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """All that is owed, by parameter."""
    return {
        path.removeprefix(_OWED): value.total() for path, value in state.items() if isinstance(value, Addends)
    }


def alone(owed: Mapping[str, Tensor]) -> dict[str, Leaf]:
    """The state of one process that still owes this."""
    leaves = {_OWED + name: Leaf(tensor, Summed(0)) for name, tensor in owed.items()}
    return {_LAYOUT: Leaf([1, 1, 1]), **leaves} if leaves else {}


def _sizes(layout: Grid) -> list[int]:
    return [layout.data, layout.tensor, layout.pipe]


def _whole(tensor: Tensor, held: Held) -> Tensor:
    """A parameter's piece in its place in the whole, among zeros."""
    kind = held.kind
    if not isinstance(kind, Sharded) or kind == Sharded.whole(tensor.shape):
        return tensor
    whole = tensor.new_zeros(kind.shape)
    for piece in kind.pieces:
        whole[_box(piece.offset, piece.shape)] = tensor[_box(piece.at, piece.shape)]
    return whole


def _box(starts: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(start, start + length) for start, length in zip(starts, shape, strict=True))
