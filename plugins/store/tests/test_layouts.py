"""Case R10: a version that several workers saved loads on any number of workers, in any layout."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nlpkernel.context import Run
from nlpkernel.errors import CheckpointError
from nlpkernel.plan.train import Train
from nlpkernel.state import (
    Addends,
    Leaf,
    PerWorker,
    Piece,
    Replicated,
    Sharded,
    Snapshot,
    Spread,
    Summed,
    local,
)
from nlpkernel_store import manifest as manifests
from nlpkernel_store.component import Cold, Store
from nlpkernel_store.examine import portion
from nlpkernel_store.manifest import Blob, Part, StoredLeaf
from nlpkernel_store.pieces import fault

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8]


class Workers:
    """The stores of all workers of a start of the run, in one process; each writes on a thread of its own."""

    starts = itertools.count()

    def __init__(self, folder, world, *, write=True, **options):
        launch = f"start{next(self.starts)}"
        self.stores = []
        for rank in range(world):
            run = Run(name="first", folder=folder, cache=folder, train=Train(), rank=rank, world=world)
            run.launch = launch
            options = {"fsync": False, "retries": 0, "rank_timeout": 20.0, **options}
            self.stores.append(run.ask(Store(**options), "open_store", run=run, folder=folder, write=write))

    def save(self, step, trees, **facts):
        """The version that the trees of all workers make. Raise what the first of them raises."""
        for store, tree in zip(self.stores, trees, strict=True):
            store.save(Snapshot(step=step, tree=tree, artifacts={"a": b"1"}, facts=facts))
        outcomes = []
        for store in self.stores:
            try:
                outcomes += [saved.version for saved in store.settle(wait=True)]
            except CheckpointError as error:
                outcomes.append(error)
        for outcome in outcomes:
            if isinstance(outcome, CheckpointError):
                raise outcome
        assert len({version.name for version in outcomes}) == 1
        return outcomes[0]

    def load(self, reference=None):
        return [store.load(reference).tree for store in self.stores]


@pytest.fixture
def workers(tmp_path):
    return lambda world, **options: Workers(tmp_path, world, **options)


def box(start, size):
    return tuple(slice(begin, begin + length) for begin, length in zip(start, size, strict=True))


def cut(whole, kind):
    """What a worker holds, piece by piece."""
    ends = [tuple(map(sum, zip(piece.at, piece.shape, strict=True))) for piece in kind.pieces]
    tensor = whole.new_empty([max(axis) for axis in zip(*ends, strict=True)])
    for piece in kind.pieces:
        tensor[box(piece.at, piece.shape)] = whole[box(piece.offset, piece.shape)]
    return tensor


def same(left, right):
    bits = [each.contiguous().reshape(-1).view(torch.uint8) for each in (left, right)] if left.numel() else []
    return (left.dtype, left.shape) == (right.dtype, right.shape) and (not bits or torch.equal(*bits))


def chunks(shape, world, axis=0):
    """What each worker holds of a whole that is cut along an axis as evenly as it goes; some may get nothing."""
    step, kinds = -(-shape[axis] // world), []
    for rank in range(world):
        offset, size = [0] * len(shape), list(shape)
        offset[axis] = min(rank * step, shape[axis])
        size[axis] = min(step, shape[axis] - offset[axis])
        kinds.append(Sharded.box(shape, offset, size))
    return kinds


@st.composite
def layouts(draw, shape, world):
    """What each worker holds of a whole; None where it holds nothing of it."""
    how = draw(st.sampled_from(["owned", "boxes", "fused"] if shape else ["owned"]))
    if how == "owned":
        owner = draw(st.integers(0, world - 1))
        return [Sharded.whole(shape) if rank == owner else None for rank in range(world)]
    if how == "boxes":
        found = [((0,) * len(shape), shape)]
        while len(found) < world:
            start, size = found.pop(draw(st.integers(0, len(found) - 1)))
            axis = draw(st.integers(0, len(shape) - 1))
            first = draw(st.integers(0, size[axis]))
            for begin, length in ((0, first), (first, size[axis] - first)):
                moved, cut_ = list(start), list(size)
                moved[axis] += begin
                cut_[axis] = length
                found.append((tuple(moved), tuple(cut_)))
        return [Sharded.box(shape, *each) for each in draw(st.permutations(found))]
    axis = draw(st.integers(0, len(shape) - 1))
    edges = sorted(draw(st.lists(st.integers(0, shape[axis]), min_size=world, max_size=7)))
    pieces, ends = [[] for _ in range(world)], [0] * world
    for begin, end in itertools.pairwise([0, *edges, shape[axis]]):
        rank = draw(st.integers(0, world - 1))
        at, offset, size = [0] * len(shape), [0] * len(shape), list(shape)
        at[axis], offset[axis], size[axis] = ends[rank], begin, end - begin
        pieces[rank].append(Piece(tuple(at), tuple(offset), tuple(size)))
        ends[rank] += end - begin
    return [Sharded(shape, tuple(own)) if own else None for own in pieces]


@st.composite
def wholes(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=3).map(tuple))
    bits = draw(st.binary(min_size=1, max_size=16))
    size = math.prod(shape) * dtype.itemsize
    repeated = torch.frombuffer(bytearray(bits * (size // len(bits) + 1)), dtype=torch.uint8)[:size]
    return repeated.clone().view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


@settings(max_examples=40)
@given(st.data())
def test_whatever_was_cut_in_one_way_loads_in_any_other(data):
    values = data.draw(st.lists(wholes(), min_size=1, max_size=3))
    before, after = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    trees = [
        {
            "n": Leaf(7),
            "random": Leaf([rank], PerWorker(rank)),
            "owed": Leaf(torch.full((2,), 2.0**rank), Summed(rank)),
        }
        for rank in range(before)
    ]
    for number, value in enumerate(values):
        for tree, kind in zip(trees, data.draw(layouts(tuple(value.shape), before)), strict=True):
            if kind is not None:
                tree[f"model/{number}"] = Leaf(cut(value, kind), kind)
    with tempfile.TemporaryDirectory() as folder:
        Workers(Path(folder), before).save(1, trees)
        for rank, tree in enumerate(Workers(Path(folder), after, write=False).load()):
            assert tree["n"] == Leaf(7)
            assert tree.get("random") == (Leaf([rank], PerWorker(rank)) if rank < before else None)
            assert tree["owed"].value.total().tolist() == [2.0**before - 1] * 2
            for number, value in enumerate(values):
                leaf = tree[f"model/{number}"]
                assert leaf.kind == Replicated()
                assert same(leaf.value.whole(), value)
                kind = data.draw(layouts(tuple(value.shape), after))[rank]
                if kind is not None:
                    assert same(local(leaf.value, kind), cut(value, kind))


def trained():
    """Weights and moments of a small model after four steps, by the paths of their leaves."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    found = {}
    for name, parameter in model.named_parameters():
        found[f"model/{name}"] = parameter.detach()
        for key, value in optimizer.state[parameter].items():
            found[f"optimizer/{name}/{key}"] = value
    return found


def sharded(values, world, axis=0):
    """The trees of workers that hold chunks of everything; what has no dimension is the last one's."""
    trees = [{} for _ in range(world)]
    for path, value in values.items():
        if not value.dim():
            trees[-1][path] = Leaf(value, Sharded.whole(()))
            continue
        for tree, kind in zip(trees, chunks(tuple(value.shape), world, axis % value.dim()), strict=True):
            tree[path] = Leaf(cut(value, kind), kind)
    return trees


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_case_r10_a_version_of_two_workers_loads_on_any_number_bit_for_bit(workers, world, axis):
    values = trained()
    assert sum(path.endswith("/exp_avg_sq") for path in values) == 4
    info = workers(2).save(4, sharded(values, 2))
    assert info.step == 4
    wanted = sharded(values, world, axis)
    trees = workers(world).load("4")
    for rank, tree in enumerate(trees):
        assert tree.keys() == values.keys()
        for path, leaf in wanted[rank].items():
            assert same(local(tree[path].value, leaf.kind), leaf.value), path
        for path, value in values.items():
            assert same(tree[path].value.whole(), value), path


def test_case_r10_a_run_goes_on_with_other_numbers_of_workers_and_writes_again_only_what_changed(
    workers, files, tmp_path
):
    base, changing = torch.randn(300_000), torch.randn(12, 3)
    step = 0
    for world in (2, 3, 1, 4):
        group = workers(world)
        if step:
            for tree in group.load():
                assert same(tree["base"].value, base)
                assert same(tree["w"].value.whole(), changing)
        for _ in range(2):
            step += 1
            changing = changing + 1
            trees = sharded({"w": changing}, world)
            trees[0]["base"] = Leaf(base)
            info = group.save(step, [{**tree, "base": Leaf(base)} for tree in trees])
            assert info.bytes > base.nbytes
    written = [path.stat().st_size for path in (tmp_path / "versions/packs").iterdir()]
    assert sum(size > base.nbytes for size in written) == 1
    reader = workers(1, write=False).stores[0]
    assert [info.step for info in reader.list()] == list(range(1, 9))
    assert not any(reader.verify(info.name) for info in reader.list())


def test_what_belongs_to_a_worker_is_taken_up_by_the_one_of_its_number_alone(workers):
    trees = [{"random/torch": Leaf(torch.full((2,), rank), PerWorker(rank))} for rank in range(3)]
    workers(3).save(1, trees)
    for world in (1, 2, 3, 5):
        for rank, tree in enumerate(workers(world, write=False).load()):
            if rank < 3:
                assert tree["random/torch"].kind == PerWorker(rank)
                assert tree["random/torch"].value.tolist() == [rank, rank]
            else:
                assert tree == {}


def test_every_worker_gets_the_addends_of_all(workers):
    workers(3).save(1, [{"owed": Leaf(torch.full((2,), 10.0**rank), Summed(rank))} for rank in range(3)])
    for world in (1, 3, 4):
        for tree in workers(world, write=False).load():
            assert isinstance(tree["owed"].value, Addends)
            assert tree["owed"].kind == Replicated()
            found = {worker: each.tolist() for worker, each in tree["owed"].value.by_worker.items()}
            assert found == {0: [1.0, 1.0], 1: [10.0, 10.0], 2: [100.0, 100.0]}
            assert tree["owed"].value.total().tolist() == [111.0, 111.0]


def test_plain_data_of_one_worker_that_all_need_is_given_to_all(workers):
    workers(2).save(1, [{}, {"optimizer/w/count": Leaf(5, Sharded.whole(()))}])
    for tree in workers(3, write=False).load():
        assert tree["optimizer/w/count"] == Leaf(5)


def test_tied_pieces_come_back_as_one(workers):
    whole = torch.arange(12.0).reshape(4, 3)
    trees = []
    for kind in chunks((4, 3), 2):
        tensor = cut(whole, kind)
        trees.append({"model/in": Leaf(tensor, kind), "model/out": Leaf(tensor, kind)})
    workers(2).save(1, trees)
    for tree in workers(2, write=False).load():
        own = [tree[path].value.take(chunks((4, 3), 2)[1]) for path in ("model/in", "model/out")]
        assert same(own[0], whole[2:])
        assert own[0].data_ptr() == own[1].data_ptr()
        assert same(tree["model/out"].value.whole(), whole)


def test_a_leaf_that_is_tied_to_one_of_another_kind_comes_back_everywhere(workers):
    tensor = torch.randn(3)
    first = {
        "own": Leaf(tensor, PerWorker(0)),
        "all": Leaf(tensor),
        "piece": Leaf(tensor, Sharded.whole((3,))),
    }
    workers(2).save(1, [first, {}])
    for rank, tree in enumerate(workers(2, write=False).load()):
        assert ("own" in tree) == (rank == 0)
        assert same(tree["all"].value, tensor)
        assert same(tree["piece"].value.whole(), tensor)


def test_what_a_worker_held_is_mapped_and_not_copied_and_equal_leaves_stay_apart(workers):
    kinds = chunks((100, 50), 2)
    whole, zeros = torch.randn(100, 50), torch.zeros(100, 50)
    trees = [
        {
            "w": Leaf(cut(whole, kind), kind),
            "m": Leaf(cut(zeros, kind), kind),
            "v": Leaf(cut(zeros, kind), kind),
            "z": Leaf(torch.zeros(50, 50)),
        }
        for kind in kinds
    ]
    workers(2).save(1, trees)
    tree, _ = workers(2, write=False).load()
    assert isinstance(tree["w"].value, Spread)
    taken = [tree["w"].value.take(kinds[1]) for _ in range(2)]
    assert taken[0].data_ptr() == taken[1].data_ptr()
    (row,) = [
        line for line in Path("/proc/self/maps").read_text().splitlines() if covers(line, taken[0].data_ptr())
    ]
    assert row.endswith("-1.safetensors")
    for path in ("m", "v"):
        tree[path].value.take(kinds[0]).fill_(1)
    tree["z"].value.fill_(1)
    assert not any(tree[path].value.whole().any() for path in ("m", "v"))


def covers(line, address):
    begin, _, end = line.split()[0].partition("-")
    return int(begin, 16) <= address < int(end, 16)


WHOLE = torch.arange(10.0)


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        (
            [Sharded.box((10,), (0,), (5,)), Sharded.box((10,), (6,), (4,))],
            r"1 of 10 elements are in no piece, the first at \(5,\)",
        ),
        ([Sharded.box((10,), (0,), (5,)), None], r"5 of 10 elements are in no piece, the first at \(5,\)"),
        (
            [Sharded.box((10,), (0,), (6,)), Sharded.box((10,), (5,), (5,))],
            r"a piece of \(5,\) from \(5,\) on overlaps another",
        ),
        (
            [Sharded.box((10,), (0,), (5,)), Sharded.box((5,), (0,), (5,))],
            r"it is a piece of \(10,\) on worker 0 and of \(5,\) on 1",
        ),
        ([Sharded.box((10,), (0,), (5,)), PerWorker(1)], "workers have saved different things"),
        ([Replicated(), Sharded.whole((10,))], "workers have saved different things"),
        ([PerWorker(0), PerWorker(0)], "it was saved more than once, by the workers 0, 1"),
        ([Summed(1), Summed(1)], "it was saved more than once, by the workers 0, 1"),
    ],
)
def test_what_does_not_make_one_value_is_refused_by_name_and_leaves_nothing(workers, files, kinds, why):
    trees = [
        {} if kind is None else {"w": Leaf(cut(WHOLE, kind) if isinstance(kind, Sharded) else WHOLE, kind)}
        for kind in kinds
    ]
    group = workers(2)
    with pytest.raises(CheckpointError, match=rf"(?s)STO002.*STO006 w cannot be stored: {why}"):
        group.save(1, trees)
    assert group.stores[0].list() == []
    assert group.save(1, [{"w": Leaf(WHOLE)}] * 2).step == 1


@pytest.mark.parametrize(
    ("leaf", "why"),
    [
        (Leaf(torch.ones(3), Sharded((9,), (Piece((0,), (0,), (2,)),))), "1 of 3 elements are in no piece"),
        (
            Leaf(torch.ones(3), Sharded((9,), (Piece((1,), (0,), (3,)),))),
            r"from \(1,\) on ends outside of \(3,\)",
        ),
        (Leaf(torch.ones(3), Sharded.box((9,), (7,), (3,))), r"from \(7,\) on ends outside of \(9,\)"),
        (Leaf(torch.ones(3), Sharded.whole((3, 1))), "a piece has 2 dimensions, and there are 1"),
        (
            Leaf(torch.ones(3), Sharded((3, 1), (Piece((0,), (0,), (3,)),))),
            "a piece has 1 dimensions, and the whole has 2",
        ),
        (Leaf(3, Sharded.whole((3,))), "plain data has no pieces"),
        (Leaf(3, Summed(0)), "an addend is a tensor"),
    ],
)
def test_a_tensor_that_is_not_what_its_kind_says_is_refused_before_anything_is_written(
    workers, tmp_path, leaf, why
):
    group = workers(1)
    with pytest.raises(CheckpointError, match=rf"STO006 w cannot be stored: .*{why}"):
        group.save(1, [{"w": leaf}])
    assert not (tmp_path / "versions").exists()


def forge(folder, change):
    """Put a manifest in the place of the only one whose parts are changed, under the name that its bytes give it."""
    catalog = Workers(folder, 1, write=False).stores[0].catalog
    (entry,) = catalog.entries()
    manifest, parts = catalog.read(entry)
    data = manifest.dump([part.dump() for part in change(parts)])
    made = manifests.entry_of(data, manifest)
    (folder / "versions" / entry.file).unlink()
    (folder / "versions" / made.file).write_bytes(data)


def leaf_of(part, path="w"):
    (leaf,) = [leaf for leaf in part.leaves if leaf.path == path]
    return leaf


def changed(number, **fields):
    """The leaf `w` of one part with other fields."""

    def change(parts):
        part = parts[number]
        leaf = attrs.evolve(leaf_of(part), **fields)
        others = tuple(each for each in part.leaves if each.path != "w")
        parts[number] = attrs.evolve(part, leaves=(leaf, *others))
        return parts

    return change


def lost(parts):
    return [parts[0], Part()]


def beyond(parts):
    blob = leaf_of(parts[1]).content
    return changed(1, content=attrs.evolve(blob, offset=blob.offset + 4))(parts)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lost, r"w: 5 of 10 elements are in no piece, the first at \(5,\)"),
        (
            changed(1, kind=Sharded.box((10,), (4,), (5,))),
            r"w: a piece of \(5,\) from \(4,\) on overlaps another",
        ),
        (
            changed(1, kind=Sharded.box((10,), (6,), (5,))),
            r"w: a piece of \(5,\) from \(6,\) on ends outside",
        ),
        (changed(1, kind=Sharded((10,), (Piece((3,), (5,), (5,)),))), r"w: .* ends outside of \(5,\)"),
        (changed(1, kind=Sharded.box((5, 2), (0, 0), (5, 1))), "w: it is a piece of "),
        (
            changed(1, kind=Sharded.box((10,), (-5,), (5,))),
            r"the manifest cannot be read: \(-5,\) are no sizes",
        ),
        (changed(1, kind=Sharded((10,), (Piece(("0",), (5,), (5,)),))), "the manifest cannot be read: "),
        (changed(1, shape=(4,)), r"w: its pieces are not its tensor of \(4,\)"),
        (changed(1, dtype="int32"), "w: workers have saved different things"),
        (changed(1, kind=Summed(0)), "w: workers have saved different things"),
        (changed(1, content="x"), "w is tied to x, which is not there"),
        (changed(1, content="w"), "w is tied to w, which is not there"),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_a_manifest_whose_pieces_do_not_fit_is_damaged_and_the_leaf_is_named(
    workers, tmp_path, change, why, verify
):
    workers(2).save(1, [{"w": Leaf(cut(WHOLE, kind), kind)} for kind in chunks((10,), 2)])
    forge(tmp_path, change)
    for world in (1, 2, 3):
        for store in workers(world, write=False, verify=verify).stores:
            with pytest.raises(CheckpointError, match=f"STO003 1-.* is damaged: .*{why}") as caught:
                store.load()
            assert "/manifests/" in caught.value.problems[0].place.file
            assert len(store.verify("newest")) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"dtype": "load"}, "n is of the unknown type load"),
        ({"dtype": "int16"}, r"n of int16 \[3\] does not have 6 bytes"),
        ({"shape": (2**40, 2**40)}, "n of float32 .* does not have"),
        ({"content": b""}, r"n of float32 \[3\] does not have 12 bytes"),
        ({"content": Blob(b"", "packs/x-0-0.safetensors", 0, 12)}, "cannot be read"),
    ],
)
def test_a_manifest_whose_tensor_is_not_the_size_of_its_bytes_is_damaged(workers, tmp_path, fields, why):
    workers(1).save(1, [{"n": Leaf(torch.ones(3))}])

    def change(parts):
        (part,) = parts
        leaf = attrs.evolve(leaf_of(part, "n"), **fields)
        sizes = dict.fromkeys([*part.packs, "packs/x-0-0.safetensors"], next(iter(part.packs.values())))
        return [attrs.evolve(part, leaves=(leaf,), packs=sizes if "content" in fields else part.packs)]

    forge(tmp_path, change)
    (store,) = workers(1, write=False, verify=False).stores
    with pytest.raises(CheckpointError, match=f"STO003 1-.* is damaged: .*({why}|is missing)"):
        store.load()


def refusing(group):
    """Workers that find a version damaged."""
    found = []
    for rank, store in enumerate(group.stores):
        try:
            store.load()
        except CheckpointError as error:
            found.append((rank, error.problems[0].code))
    assert all(code == "STO003" for _, code in found)
    return [rank for rank, _ in found]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_byte_is_verified_by_somebody_and_a_piece_by_one_worker_only(workers, tmp_path, world):
    kinds = chunks((12,), 3)
    trees = [
        {
            "all": Leaf(torch.ones(4)),
            "w": Leaf(cut(torch.arange(12.0), kind), kind),
            "owed": Leaf(torch.full((2,), 10.0 + rank), Summed(rank)),
            "own": Leaf(torch.full((2,), 20.0 + rank), PerWorker(rank)),
        }
        for rank, kind in enumerate(kinds)
    ]
    workers(3).save(1, trees)
    group = workers(world, write=False)
    assert refusing(group) == []
    catalog = group.stores[0].catalog
    for number, part in enumerate(catalog.read(catalog.entries()[0])[1]):
        spans = {leaf.path: (leaf.content.offset, leaf.content.size) for leaf in part.leaves}
        assert sum(size for _, size in spans.values()) == sum(size.data for size in part.packs.values())
        for path, (offset, size) in {**spans, "the header": (0, 8)}.items():
            for position in (offset, offset + size - 1):
                (pack,) = part.packs
                file = tmp_path / "versions" / pack
                whole = file.read_bytes()
                file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
                everybody = number == 0 and path in ("all", "the header")
                assert refusing(group) == (list(range(world)) if everybody else [number % world]), path
                file.write_bytes(whole)


def test_a_pack_of_any_worker_that_is_gone_stops_all_workers(workers, tmp_path):
    workers(2).save(1, [{"w": Leaf(cut(WHOLE, kind), kind)} for kind in chunks((10,), 2)])
    (gone,) = (tmp_path / "versions/packs").glob("*-1.safetensors")
    gone.unlink()
    for store in workers(3, write=False).stores:
        with pytest.raises(CheckpointError, match=f"{gone.name}: STO003 .* it is missing"):
            store.load()


def test_what_is_fetched_from_far_away_is_a_copy_and_what_lies_here_is_none(tmp_path):
    far = f"memory://{tmp_path.name}"
    near = Store(fsync=False).catalog(tmp_path).files
    assert Store(url=far).catalog(tmp_path).files.copies("packs/a")
    assert not near.copies("packs/a")
    both = Store(fsync=False, cold=Cold(url=far)).catalog(tmp_path).files
    both.hot.create("packs/a", [b"1"])
    both.cold.create("packs/b", [b"1"])
    assert [both.copies(name) for name in ("packs/a", "packs/b")] == [False, True]


def stored(path, kind, pack, content=None):
    blob = Blob(path.encode(), pack, 0, 4)
    return StoredLeaf(path=path, kind=kind, content=content or blob, dtype="float32", shape=(1,))


def test_of_packs_that_are_copied_to_this_machine_every_worker_verifies_all_that_it_takes_up():
    def part(rank):
        leaves = [
            stored("w", Sharded.box((2,), (rank,), (1,)), f"near{rank}"),
            stored("m", Sharded.box((2,), (rank,), (1,)), f"far{rank}"),
            stored("tied", Sharded.box((2,), (rank,), (1,)), "", content="m"),
            stored("own", PerWorker(rank), f"far{rank}"),
        ]
        if rank == 0:
            leaves += [stored("all", Replicated(), "near0"), stored("alike", Replicated(), "", content="own")]
        packs = dict.fromkeys((f"near{rank}", f"far{rank}"), manifests.PackSize(4, 4))
        return Part(packs=packs, leaves=tuple(leaves))

    parts = [part(0), part(1)]
    for rank, names in ((0, ["m"]), (1, ["m", "all", "own"])):
        both = portion(parts, rank, 2, lambda pack: pack.startswith("far"))
        assert both[rank] == parts[rank]
        assert sorted(leaf.path for leaf in both[1 - rank].leaves) == sorted(names)
    assert portion(parts, 0, 1, lambda pack: False) == parts
    assert [len(each.leaves) for each in portion(parts, 2, 3, lambda pack: False)] == [2, 0]


def test_a_pack_that_the_first_worker_does_not_see_is_no_version(workers, files, tmp_path):
    group = workers(2, rank_timeout=0.3)
    second = group.stores[1].catalog.files
    replace = second.replace

    def unseen(name, data):
        for path in (tmp_path / "versions/packs").glob("*-1.safetensors"):
            path.unlink()
        replace(name, data)

    second.replace = unseen
    trees = [{"own": Leaf(torch.full((9,), rank), PerWorker(rank))} for rank in range(2)]
    with pytest.raises(CheckpointError, match=r"STO007 worker 1 names .*-1.safetensors with .* is not there"):
        group.save(1, trees)
    assert group.stores[0].list() == []
    assert files("packs/") == []
    second.replace = replace
    assert group.save(1, trees).step == 1


def test_a_pack_that_is_seen_late_is_waited_for(workers, tmp_path):
    group = workers(2)
    first = group.stores[0].catalog.files
    names, looks = first.names, itertools.count()

    def late(prefix=""):
        found = names(prefix)
        if prefix == "packs/" and next(looks) < 3:
            return {name: size for name, size in found.items() if not name.endswith("-1.safetensors")}
        return found

    first.names = late
    trees = [{"own": Leaf(torch.full((9,), rank), PerWorker(rank))} for rank in range(2)]
    assert group.save(1, trees).step == 1
    assert next(looks) > 3


edges = st.integers(0, 3)


@given(
    st.lists(edges, max_size=3)
    .map(tuple)
    .flatmap(
        lambda shape: st.tuples(
            st.just(shape),
            st.lists(st.tuples(*[st.tuples(*[edges] * len(shape))] * 2), max_size=5),
        )
    )
)
def test_pieces_fit_exactly_where_every_element_is_in_one_of_them(drawn):
    shape, boxes = drawn
    counts = dict.fromkeys(itertools.product(*map(range, shape)), 0)
    inside = True
    for start, size in boxes:
        for at in itertools.product(*[range(s, s + n) for s, n in zip(start, size, strict=True)]):
            inside = inside and at in counts
            counts[at] = counts.get(at, 0) + 1
    wrong = fault(shape, boxes)
    assert (wrong is None) == (inside and all(count == 1 for count in counts.values()))
    if not inside:
        assert "ends outside" in wrong
    elif any(count > 1 for count in counts.values()):
        assert "overlaps" in wrong
    elif wrong:
        missing = sorted(at for at, count in counts.items() if not count)
        assert wrong == (
            f"{len(missing)} of {len(counts)} elements are in no piece, the first at {missing[0]}"
        )
