"""Whole tensors cut into pieces, and taken up again in another cut."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.state import Addends, PerWorker, Piece, Replicated, Sharded, Spread, Summed, local

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def box(start, size):
    return tuple(slice(begin, begin + length) for begin, length in zip(start, size, strict=True))


def numbered(shape):
    """A tensor each of whose elements is another number."""
    return torch.arange(1, math.prod(shape) + 1).reshape(shape)


def cut(whole, kind, size):
    """What a worker holds, piece by piece."""
    tensor = torch.full(size, -1)
    for piece in kind.pieces:
        tensor[box(piece.at, piece.shape)] = whole[box(piece.offset, piece.shape)]
    return tensor


@st.composite
def boxes(draw, shape, number):
    """Boxes that fill a space, some of them empty: it is split again and again, anywhere along any axis."""
    found = [((0,) * len(shape), shape)]
    while shape and len(found) < number:
        start, size = found.pop(draw(st.integers(0, len(found) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        first = draw(st.integers(0, size[axis]))
        for begin, length in ((start[axis], first), (start[axis] + first, size[axis] - first)):
            found.append(
                tuple(
                    (*each[:axis], new, *each[axis + 1 :]) for each, new in ((start, begin), (size, length))
                )
            )
    return found


@st.composite
def layouts(draw, shape):
    """What each of some workers holds of a whole, and the size of its tensor: a box each, or stripes put together."""
    workers = draw(st.integers(1, 4))
    if not shape or draw(st.booleans()):
        return [(Sharded.box(shape, start, size), size) for start, size in draw(boxes(shape, workers))]
    axis = draw(st.integers(0, len(shape) - 1))
    edges = sorted(draw(st.lists(st.integers(0, shape[axis]), max_size=6)))
    pieces, ends = [[] for _ in range(workers)], [0] * workers
    for begin, end in itertools.pairwise([0, *edges, shape[axis]]):
        worker = draw(st.integers(0, workers - 1))
        at, offset, size = ([0] * len(shape), [0] * len(shape), list(shape))
        at[axis], offset[axis], size[axis] = ends[worker], begin, end - begin
        pieces[worker].append(Piece(tuple(at), tuple(offset), tuple(size)))
        ends[worker] += end - begin
    # Who has no piece has no leaf.
    return [
        (Sharded(shape, tuple(own)), (*shape[:axis], end, *shape[axis + 1 :]))
        for own, end in zip(pieces, ends, strict=True)
        if own
    ]


def spread(whole, layout):
    parts = [(piece, cut(whole, kind, size)) for kind, size in layout for piece in kind.pieces]
    return Spread(whole.shape, parts)


@given(st.data())
def test_what_was_cut_in_one_way_is_taken_up_in_any_other(data):
    shape = data.draw(shapes)
    whole = numbered(shape)
    scattered = spread(whole, data.draw(layouts(shape)))
    assert torch.equal(scattered.whole(), whole)
    for kind, size in data.draw(layouts(shape)):
        for value in (scattered, whole):
            taken = local(value, kind)
            assert taken.shape == torch.Size(size)
            assert torch.equal(taken, cut(whole, kind, size))
    for kind in (Replicated(), PerWorker(1), Summed(1)):
        assert torch.equal(local(scattered, kind), whole)
        assert local(whole, kind) is whole


@given(st.data())
def test_a_missing_piece_is_an_error_for_those_who_need_it_only(data):
    shape = data.draw(shapes)
    whole = numbered(shape)
    parts = list(spread(whole, data.draw(layouts(shape))).parts)
    gone, _ = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
    scattered = Spread(shape, parts)
    missing = torch.zeros(shape, dtype=torch.bool)
    missing[box(gone.offset, gone.shape)] = True
    for kind, size in [*data.draw(layouts(shape)), (Sharded.whole(shape), shape)]:
        lacking = [int(missing[box(piece.offset, piece.shape)].sum()) for piece in kind.pieces]
        if any(lacking) or not parts:
            number = next(filter(None, lacking), 0)
            match = f"^{number} of .* are in no piece" if parts else "there are no pieces"
            with pytest.raises(ValueError, match=match):
                scattered.take(kind)
        else:
            assert torch.equal(scattered.take(kind), cut(whole, kind, size))


def test_what_lies_in_one_part_is_a_view_of_it_and_anything_else_a_copy():
    tensor = numbered((4, 3))
    # Rows 2 and 3 of the whole, behind rows that are of something else.
    scattered = Spread(
        (4, 3),
        [(Piece((2, 0), (2, 0), (2, 3)), tensor), (Piece((0, 0), (0, 0), (2, 3)), numbered((2, 3)))],
    )
    view = scattered.take(Sharded.box((4, 3), (2, 0), (2, 3)))
    assert view.data_ptr() == tensor[2:].data_ptr()
    view.zero_()
    assert not tensor[2:].any()
    assert tensor[:2].all()
    scattered.take(Sharded.box((4, 3), (2, 0), (1, 3))).fill_(7)
    scattered.whole().fill_(7)
    assert not tensor[2:].any()


def test_of_memory_that_is_also_another_leafs_no_view_is_given():
    tensor = numbered((2, 3))
    scattered = Spread((2, 3), [(Sharded.whole((2, 3)).pieces[0], tensor)], shared=True)
    taken = scattered.whole()
    assert torch.equal(taken, tensor)
    taken.zero_()
    assert tensor.all()


def test_a_tensor_that_is_whole_already_is_a_view_for_who_holds_all_of_it():
    whole = numbered((2, 3))
    assert local(whole, Sharded.whole((2, 3))).data_ptr() == whole.data_ptr()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool]
)
def test_pieces_keep_their_type_bit_for_bit(dtype):
    size = torch.empty(0, dtype=dtype).itemsize
    whole = (torch.arange(8 * size) % (2 if dtype == torch.bool else 256)).to(torch.uint8).view(dtype)
    halves = [Sharded.box((8,), (start,), (4,)) for start in (0, 4)]
    parts = [(kind.pieces[0], local(whole, kind)) for kind in halves]
    made = Spread((8,), parts).whole()
    assert made.dtype == dtype
    assert torch.equal(made.view(torch.uint8), whole.view(torch.uint8))


@given(st.dictionaries(st.integers(0, 9), st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5))
def test_addends_add_up_in_the_order_of_the_workers_and_stay_as_they_are(numbers):
    by_worker = {worker: torch.tensor([number, 1.0]) for worker, number in numbers.items()}
    before = {worker: tensor.clone() for worker, tensor in by_worker.items()}
    expected = torch.zeros(2)
    for index, worker in enumerate(sorted(numbers)):
        expected = before[worker] if index == 0 else expected + before[worker]
    assert torch.equal(Addends(by_worker).total(), expected)
    assert all(torch.equal(by_worker[worker], before[worker]) for worker in numbers)


def test_a_piece_counts_its_elements():
    assert [Piece(shape, shape, shape).elements for shape in [(), (0, 3), (2, 3)]] == [1, 0, 6]
