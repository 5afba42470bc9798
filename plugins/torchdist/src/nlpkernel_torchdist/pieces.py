"""Which pieces of a whole tensor a worker holds after it was cut. Light: no torch."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nlpkernel.state import Kind, Piece, Sharded


def share(length: int, index: int, count: int) -> tuple[int, int]:
    """Begin and end of chunk `index` of `count` of a dimension, as `torch.chunk` cuts it: all but the last few have
    the same size, which may be empty."""
    size = -(-length // count)
    return min(index * size, length), min((index + 1) * size, length)


def rows(kind: Kind, shape: Sequence[int], start: int, stop: int) -> Sharded:
    """What rows [start, stop) of the first dimension of a tensor of this `kind` and local `shape` hold of the whole."""
    if not isinstance(kind, Sharded):
        kind = Sharded.whole(shape)
    kept: list[Piece] = []
    for piece in kind.pieces:
        low, high = max(piece.at[0], start), min(piece.at[0] + piece.shape[0], stop)
        if low < high:
            kept.append(
                Piece(
                    (low - start, *piece.at[1:]),
                    (piece.offset[0] + low - piece.at[0], *piece.offset[1:]),
                    (high - low, *piece.shape[1:]),
                )
            )
    if not kept:
        kept = [attrs.evolve(kind.pieces[0], at=(0,) * len(shape), shape=(0, *shape[1:]))]
    return Sharded(kind.shape, tuple(kept))


#: Rows [start, stop) of the first dimension of a tensor, by its place in a list.
Rows = tuple[int, int, int]


def divide(shapes: Sequence[Sequence[int]], count: int, *, whole: bool = False) -> list[list[Rows]]:
    """Divide tensors that lie one after the other among `count` workers into parts of about the same size, cut between
    two rows; with `whole`, between two tensors."""
    sizes = [_product(shape) for shape in shapes]
    parts: list[list[Rows]] = [[] for _ in range(count)]
    total, before = sum(sizes), 0
    for index, (shape, size) in enumerate(zip(shapes, sizes, strict=True)):
        length = shape[0] if shape else 1
        start = 0
        for worker in range(count):
            # The end of this worker's part, in rows of this tensor.
            end = (worker + 1) * total / count - before
            if whole or not shape:
                stop = length if 2 * end >= size else 0
            else:
                stop = min(length, max(0, round(end * length / size))) if size else length
            if worker == count - 1:
                stop = length
            if stop > start:
                parts[worker].append((index, start, stop))
                start = stop
        before += size
    return parts


def _product(shape: Sequence[int]) -> int:
    number = 1
    for length in shape:
        number *= length
    return number
