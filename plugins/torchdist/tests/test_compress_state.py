"""What compressors keep, given back to workers of the same or another layout."""

from __future__ import annotations

import pytest
import torch

from nlpkernel.engine.owed import Books, alone, total
from nlpkernel.hookspecs.communicator import Held
from nlpkernel.state import Addends, PerWorker, Piece, Replicated, Sharded, Spread, Summed
from nlpkernel_torchdist.layout import Layout

#: Whole sizes; `cut` is cut along tensor by rows, `norm` is on all workers.
SHAPES = {"cut": (4, 3), "norm": (5,)}
LAYOUTS = [Layout(data=1), Layout(data=2), Layout(data=3), Layout(data=2, tensor=2), Layout(data=1, tensor=4)]


class Kept:
    """A compressor as far as its state goes."""

    def __init__(self, owed=(), factors=()):
        self._owed, self._factors = dict(owed), dict(factors)

    def owed(self):
        return self._owed

    def factors(self):
        return self._factors

    def load(self, owed, factors):
        self.__init__(owed, factors)


def books(layout, rank):
    at = layout.coordinates(rank)
    rows = SHAPES["cut"][0] // layout.tensor
    kind = (
        Sharded.box(SHAPES["cut"], (at["tensor"] * rows, 0), (rows, 3)) if layout.tensor > 1 else Replicated()
    )
    held = {
        "cut": Held(name="cut", tensor=torch.empty(rows, 3), kind=kind),
        "norm": Held(name="norm", tensor=torch.empty(5), kind=Replicated()),
    }
    names = ["cut", "norm"] if at["tensor"] == 0 or layout.tensor == 1 else ["cut"]
    return Books(layout, rank, held, frozenset(names), frozenset(["cut"] if layout.tensor > 1 else []))


def workers_of(layout):
    """Compressors that all owe something; copies along tensor owe the same."""
    made = []
    for rank in range(layout.workers):
        data = layout.coordinates(rank)["data"]
        cut = torch.full_like(books(layout, rank).held["cut"].tensor, rank + 1.0)
        made.append(Kept({"cut": cut, "norm": torch.arange(5.0) + data}, {"cut": torch.ones(3, 2) * rank}))
    return made


def saved(layout, compressors):
    """As the store gives it back to any worker."""
    state, addends = {}, {}
    for rank, compressor in enumerate(compressors):
        for path, leaf in books(layout, rank).leaves(compressor):
            if isinstance(leaf.kind, Summed):
                addends.setdefault(path, {})[leaf.kind.worker] = leaf.value
            elif isinstance(leaf.kind, Sharded):
                assert path not in state
                state[path] = Spread(leaf.kind.shape, [(leaf.kind.pieces[0], leaf.value)])
            elif not isinstance(leaf.kind, PerWorker):
                state[path] = leaf.value
    return state | {path: Addends(by_worker) for path, by_worker in addends.items()}


def whole(layout, compressors):
    """The sum that all owe: of copies along tensor, one counts."""
    sums = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    for rank, compressor in enumerate(compressors):
        at, owed = layout.coordinates(rank), compressor.owed()
        rows = SHAPES["cut"][0] // layout.tensor
        if "cut" in owed:
            sums["cut"][at["tensor"] * rows : (at["tensor"] + 1) * rows] += owed["cut"]
        if "norm" in owed and at["tensor"] == 0:
            sums["norm"] += owed["norm"]
    return sums


@pytest.mark.parametrize("before", LAYOUTS, ids=str)
@pytest.mark.parametrize("after", LAYOUTS, ids=str)
def test_the_sum_that_is_owed_stays_and_the_same_layout_gives_each_worker_its_own(before, after):
    compressors = workers_of(before)
    state = saved(before, compressors)
    taken = [Kept() for _ in range(after.workers)]
    for rank, each in enumerate(taken):
        books(after, rank).take_up(each, state)
    expected, found = whole(before, compressors), whole(after, taken)
    assert all(torch.equal(found[name], each) for name, each in expected.items())
    if after == before:
        for each, own in zip(taken, compressors, strict=True):
            assert all(torch.equal(each.owed()[name], value) for name, value in own.owed().items())
    # Copies along tensor owe the same.
    for rank, each in enumerate(taken):
        first = after.rank(pipe=0, data=after.coordinates(rank)["data"], tensor=0)
        ours, theirs = each.owed().get("norm"), taken[first].owed().get("norm")
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)


def test_one_process_owes_the_sum_until_it_is_paid():
    layout = Layout(data=3)
    compressors = workers_of(layout)
    owed = total(saved(layout, compressors))
    assert torch.equal(owed["norm"], whole(layout, compressors)["norm"])
    leaves = alone(owed)
    assert leaves["residual/norm"].kind == Summed(0)
    taken = [Kept() for _ in range(2)]
    state = {path: Addends({0: leaf.value}) for path, leaf in leaves.items() if isinstance(leaf.kind, Summed)}
    for rank, each in enumerate(taken):
        books(Layout(data=2), rank).take_up(each, {**state, "residual-layout": [1, 1, 1]})
    assert torch.equal(whole(Layout(data=2), taken)["norm"], owed["norm"])
    assert alone({}) == {}


def test_factors_are_the_same_on_all_data_workers():
    layout = Layout(data=2)
    compressors = [Kept({}, {"cut": torch.ones(3, 2)}) for _ in range(2)]
    state = saved(layout, compressors)
    taken = Kept()
    books(Layout(data=3), 2).take_up(taken, state)
    assert torch.equal(taken.factors()["cut"], torch.ones(3, 2))


def test_pieces_that_lie_apart_are_put_in_their_places():
    """A worker's share of queries, keys and values."""
    pieces = tuple(Piece((row, 0), (2 * row + 1, 0), (1, 3)) for row in range(2))
    held = Held(name="cut", tensor=torch.empty(2, 3), kind=Sharded((4, 3), pieces))
    made = Books(Layout(data=2, tensor=2), 1, {"cut": held}, frozenset({"cut"}), frozenset({"cut"}))
    owed = torch.arange(6.0).view(2, 3)
    leaves = dict(made.leaves(Kept({"cut": owed})))
    value = leaves["residual/cut"].value
    assert value[[1, 3]].equal(owed)
    assert not value[[0, 2]].any()
    taken = Kept()
    made.take_up(taken, {"residual/cut": Addends({1: value}), "residual-layout": [2, 2, 1]})
    assert taken.owed()["cut"].equal(owed)
