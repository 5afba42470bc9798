"""Whether boxes fill a space, each element once. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

Sizes = tuple[int, ...]
#: Where a box begins, and its size, in elements per dimension.
Box = tuple[Sizes, Sizes]


def fault(shape: Sizes, boxes: Sequence[Box]) -> str | None:
    """A clause that says why boxes do not fill a space of the size `shape`, or None where they do. Boxes without
    elements may lie anywhere."""
    for start, size in boxes:
        if not len(start) == len(size) == len(shape):
            return f"a piece has {len(size)} dimensions, and there are {len(shape)}"
    boxes = [box for box in boxes if 0 not in box[1]]
    for start, size in boxes:
        if any(begin + length > end for begin, length, end in zip(start, size, shape, strict=True)):
            return f"a piece of {size} from {start} on ends outside of {shape}"
    if double := _overlapping(boxes):
        return f"a piece of {double[1]} from {double[0]} on overlaps another"
    missing = math.prod(shape) - sum(math.prod(size) for _, size in boxes)
    if missing:
        return f"{missing} of {math.prod(shape)} elements are in no piece, the first at {_gap(shape, boxes)}"
    return None


def _overlapping(boxes: Sequence[Box]) -> Box | None:
    """A box that overlaps one before it."""
    if len(boxes) < 2:
        return None
    dimensions = range(len(boxes[0][0]))
    # Along the axis in which most begin at a place of their own, few are compared with each other.
    axis = max(dimensions, key=lambda each: len({start[each] for start, _ in boxes}), default=None)
    if axis is None:
        return boxes[1]
    near: list[Box] = []
    for box in sorted(boxes, key=lambda box: box[0][axis]):
        start, size = box
        near = [other for other in near if other[0][axis] + other[1][axis] > start[axis]]
        for other_start, other_size in near:
            if all(
                max(start[each], other_start[each])
                < min(start[each] + size[each], other_start[each] + other_size[each])
                for each in dimensions
            ):
                return box
        near.append(box)
    return None


def _gap(shape: Sizes, boxes: Sequence[Box]) -> Sizes | None:
    """The first element that is in no box; None where there is none."""
    if not shape:
        return None if boxes else ()
    edges = {0, *(start[0] + size[0] for start, size in boxes)}
    # Where something is missing first, either the space begins or a box has ended.
    for edge in sorted(edge for edge in edges if edge < shape[0]):
        within = [(start[1:], size[1:]) for start, size in boxes if start[0] <= edge < start[0] + size[0]]
        rest = _gap(shape[1:], within)
        if rest is not None:
            return (edge, *rest)
    return None
