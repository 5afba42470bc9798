"""What each worker has saved of a leaf, and whether it makes one value. Light: no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from nlpkernel.state import Kind, PerWorker, Replicated, Sharded, Summed
from nlpkernel_store import pieces

if TYPE_CHECKING:
    from nlpkernel_store.manifest import Part, StoredLeaf


@attrs.frozen
class Share:
    """What one worker has saved of a leaf. part: the number of the worker. leaf: what is stored, which is another leaf
    where it is tied to that."""

    kind: Kind
    part: int
    leaf: StoredLeaf


def shares(parts: Sequence[Part]) -> dict[str, list[Share]]:
    """What all workers have saved, by path, in the order in which paths come. Raise ValueError where a leaf is tied to
    none."""
    found: dict[str, list[Share]] = {}
    for number, part in enumerate(parts):
        by_path = {leaf.path: leaf for leaf in part.leaves}
        for leaf in part.leaves:
            stored = leaf
            if isinstance(leaf.content, str):
                stored = by_path.get(leaf.content, leaf)
                if isinstance(stored.content, str):
                    raise ValueError(f"{leaf.path} is tied to {leaf.content}, which is not there")
            found.setdefault(leaf.path, []).append(Share(leaf.kind, number, stored))
    return found


def checked(parts: Sequence[Part]) -> dict[str, list[Share]]:
    """`shares`. Raise ValueError, naming the leaf, also where those of one do not make one value."""
    found = shares(parts)
    for path, given in found.items():
        if wrong := fault(given):
            raise ValueError(f"{path}: {wrong}")
    return found


def fault(given: Sequence[Share]) -> str | None:
    """A clause that says why the shares of a leaf do not make one value, or None where they do."""
    first = given[0]
    types = {(type(share.kind), share.leaf.dtype) for share in given}
    if len(types) > 1:
        return "workers have saved different things under that name"
    match first.kind:
        case Replicated():
            return _twice([share.part for share in given]) if len(given) > 1 else None
        case PerWorker():
            return _one_each(given)
        case Summed():
            if first.leaf.dtype is None or any(share.leaf.shape != first.leaf.shape for share in given):
                return "its addends are not tensors of one shape"
            return _one_each(given)
        case Sharded(shape):
            if first.leaf.dtype is None:
                if shape:
                    return "plain data has no pieces"
                return _twice([share.part for share in given]) if len(given) > 1 else None
            return _pieces(shape, given)


def own_fault(kind: Kind, shape: tuple[int, ...] | None) -> str | None:
    """A clause that says why one worker's value is not what its kind says; `shape` is that of its tensor, and None for
    plain data."""
    match kind:
        case Summed() if shape is None:
            return "an addend is a tensor"
        case Sharded(whole) if shape is None and whole:
            return "plain data has no pieces"
        case Sharded(whole, own) if shape is not None:
            if wrong := pieces.fault(shape, [(piece.at, piece.shape) for piece in own]):
                return f"its pieces are not its tensor of {shape}: {wrong}"
            for piece in own:
                if not len(piece.offset) == len(piece.shape) == len(whole):
                    return f"a piece has {len(piece.shape)} dimensions, and the whole has {len(whole)}"
                ends = map(sum, zip(piece.offset, piece.shape, strict=True))
                if piece.elements and any(end > most for end, most in zip(ends, whole, strict=True)):
                    return f"a piece of {piece.shape} from {piece.offset} on ends outside of {whole}"
    return None


def _pieces(shape: tuple[int, ...], given: Sequence[Share]) -> str | None:
    boxes: list[pieces.Box] = []
    for share in given:
        assert isinstance(share.kind, Sharded)
        if share.kind.shape != shape:
            return f"it is a piece of {shape} on worker {given[0].part} and of {share.kind.shape} on {share.part}"
        boxes += [(piece.offset, piece.shape) for piece in share.kind.pieces]
        if wrong := own_fault(share.kind, share.leaf.shape):
            return f"{wrong} (on worker {share.part})"
    return pieces.fault(shape, boxes)


def _one_each(given: Sequence[Share]) -> str | None:
    workers = [share.kind.worker for share in given if isinstance(share.kind, (PerWorker, Summed))]
    return None if len(set(workers)) == len(workers) else _twice([share.part for share in given])


def _twice(workers: Sequence[int]) -> str:
    return f"it was saved more than once, by the workers {', '.join(map(str, workers))}"
