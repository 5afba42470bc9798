"""State in typed leaves: what a leaf is decides what becomes of it when the number of workers changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen
class Replicated:
    """The same on every worker; the first one saves it."""


@attrs.frozen
class Piece:
    """A box of a whole tensor: it begins at `offset` in the whole and at `at` in the worker's own tensor, and has the
    size `shape`, all in elements per dimension."""

    at: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many it has."""
        return _product(self.shape)


@attrs.frozen
class Sharded:
    """Pieces of a whole of the size `shape`. Several, where the worker's tensor puts together what lies apart in the
    whole (its share of the queries, of the keys, and of the values). Who holds a copy of what another worker saves has
    no leaf of it."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @classmethod
    def box(cls, shape: Sequence[int], offset: Sequence[int], size: Sequence[int]) -> Sharded:
        """One box that is all of the worker's tensor."""
        return cls(tuple(shape), (Piece((0,) * len(shape), tuple(offset), tuple(size)),))

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Sharded:
        """All of it, and on no other worker."""
        return cls.box(shape, (0,) * len(shape), shape)


@attrs.frozen
class PerWorker:
    """Belongs to one worker (its random generators): the one of that number takes it up, and one that was not there
    then has none."""

    worker: int


@attrs.frozen
class Summed:
    """An addend of `worker`: only the sum over all workers has a meaning (what compressors still owe), and it is what
    another number of workers takes up."""

    worker: int


Kind = Replicated | Sharded | PerWorker | Summed


class Spread:
    """A whole tensor that lies in pieces: the value that a version gives for `Sharded` leaves.

    parts: pieces from all workers, each with the tensor that it is in. shared: that memory is also another leaf's, so
    that `take` gives none of it away.
    """

    def __init__(
        self, shape: Sequence[int], parts: Sequence[tuple[Piece, Tensor]], *, shared: bool = False
    ) -> None:
        self.shape, self.parts, self.shared = tuple(shape), parts, shared

    def take(self, kind: Sharded) -> Tensor:
        """The tensor of a worker that holds `kind`. Where it lies in one part it is a view of that. Raise ValueError
        where an element is in no part."""
        if not self.parts:
            raise ValueError("there are no pieces")
        if len(kind.pieces) == 1:
            wanted = kind.pieces[0]
            for part, tensor in self.parts:
                if part.offset == wanted.offset and part.shape == wanted.shape:
                    found = tensor[_slices(part.at, part.shape)]
                    return found.clone() if self.shared else found
        size = tuple(
            max((piece.at[axis] + piece.shape[axis] for piece in kind.pieces), default=0)
            for axis in range(len(self.shape))
        )
        made = self.parts[0][1].new_empty(size)
        for wanted in kind.pieces:
            self._copy(wanted, made)
        return made

    def whole(self) -> Tensor:
        """All of it in one tensor. Raise ValueError where an element is in no part."""
        return self.take(Sharded.whole(self.shape))

    def _copy(self, wanted: Piece, into: Tensor) -> None:
        # Pieces of different workers do not overlap, so that counting elements tells whether all are there.
        left = wanted.elements
        for part, tensor in self.parts:
            starts = tuple(map(max, part.offset, wanted.offset))
            ends = [
                min(a + n, b + m)
                for a, n, b, m in zip(part.offset, part.shape, wanted.offset, wanted.shape, strict=True)
            ]
            size = tuple(end - start for start, end in zip(starts, ends, strict=True))
            if any(length <= 0 for length in size):
                continue
            there = tuple(s - o + at for s, o, at in zip(starts, part.offset, part.at, strict=True))
            here = tuple(s - o + at for s, o, at in zip(starts, wanted.offset, wanted.at, strict=True))
            into[_slices(here, size)] = tensor[_slices(there, size)]
            left -= _product(size)
        if left:
            raise ValueError(f"{left} of {wanted.elements} elements from {wanted.offset} on are in no piece")


class Addends:
    """What a version gives for `Summed` leaves: the addend of each worker."""

    def __init__(self, by_worker: Mapping[int, Tensor]) -> None:
        self.by_worker = by_worker

    def total(self) -> Tensor:
        """Their sum, in the order of the workers."""
        first, *others = (self.by_worker[worker] for worker in sorted(self.by_worker))
        total = first.clone()
        for other in others:
            total += other
        return total


def local(value: Tensor | Spread, kind: Kind) -> Tensor:
    """The tensor of a worker that holds `kind` of `value`, which is a whole tensor or lies in pieces."""
    if isinstance(value, Spread):
        return value.take(kind if isinstance(kind, Sharded) else Sharded.whole(value.shape))
    if not isinstance(kind, Sharded):
        return value
    return Spread(value.shape, [(Sharded.whole(value.shape).pieces[0], value)]).take(kind)


def _slices(starts: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(start, start + length) for start, length in zip(starts, shape, strict=True))


def _product(shape: Sequence[int]) -> int:
    number = 1
    for length in shape:
        number *= length
    return number


@attrs.frozen
class Leaf:
    """One value of the state: a tensor, or plain data (None, bool, int, float, str, bytes, list, dict).

    In a loaded snapshot the value of a `Sharded` leaf is a `Spread`, and that of a `Summed` one is `Addends`.
    """

    value: Any
    kind: Kind = Replicated()


#: The whole state of a run: path ("model/blocks.0.attn.q", "optimizer/...", "random/torch") to leaf.
Tree = Mapping[str, Leaf]


#: Weights that training goes on with; and, where a component holds others outside of it (`weights_for`), those.
MODEL, EXPORT = "model/", "export/"


def weights_of(tree: Tree) -> dict[str, Leaf]:
    """The weights to use, by name: those that evaluations are of."""
    chosen = EXPORT if any(path.startswith(EXPORT) for path in tree) else MODEL
    return {path.removeprefix(chosen): leaf for path, leaf in tree.items() if path.startswith(chosen)}


#: A name of a component's state that begins so holds what follows the clock (seconds used), which no repetition gives
#: again; it is kept, and compared with nothing.
CLOCK = "clock/"


class Stateful(Protocol):
    """Something that can be put away and taken up again, exactly, also while it is in use: a roll-back does that."""

    def state(self) -> Mapping[str, Any]:
        """What must be kept: names to tensors or plain data."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave. Raise ValueError where it does not fit."""


@attrs.frozen(kw_only=True)
class Snapshot:
    """Everything of a run at one moment, as it goes into a version. Its tensors are the run's own, not copies: the next
    step changes them.

    `artifacts` are small files that later uses need (tokenizer, label map); `facts` is plain data about where this
    comes from (progress, metrics, lock, filled plan). `name` is that of the version that it was loaded from, if it was.
    """

    step: int
    tree: Tree
    artifacts: Mapping[str, bytes]
    facts: Mapping[str, Any]
    name: str | None = None


@attrs.frozen(kw_only=True)
class VersionInfo:
    """One saved version, as a listing shows it. `name` is what `load` takes."""

    name: str
    step: int
    bytes: int
    created: float
    metrics: Mapping[str, float | None]
    tags: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Saved:
    """What became of one save. `version` is None where it failed, and `error` says why. seconds: from the save to its
    end, most of which the training did not wait for."""

    step: int
    version: VersionInfo | None
    seconds: float
    error: str = ""
