"""What is written again and what is not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.state import Leaf
from nlpkernel_store.component import Keep
from nlpkernel_store.manifest import Blob, PackSize
from nlpkernel_store.sharing import place

MIB = 1 << 20


@pytest.fixture
def save(open_store, snapshot, put, run):
    """Save trees of float tensors, given by name as (elements, seed), and return the bytes that each save wrote."""
    store = open_store()

    def save_them(*trees):
        written = []
        for step, tree in enumerate(trees, 1):
            before = {path.name for path in (run.folder / "versions").rglob("*.safetensors")}
            leaves = {
                name: Leaf(torch.full((size,), float(seed)) + torch.arange(size))
                for name, (size, seed) in tree.items()
            }
            put(store, snapshot(step=step, tree=leaves))
            paths = (run.folder / "versions").rglob("*.safetensors")
            written.append(sum(path.stat().st_size for path in paths if path.name not in before))
        for step, tree in enumerate(trees, 1):
            back = store.load(str(step)).tree
            for name, (size, seed) in tree.items():
                assert torch.equal(back[name].value, torch.full((size,), float(seed)) + torch.arange(size))
        assert not any(store.verify(info.name) for info in store.list())
        return written

    return save_them


def test_a_frozen_base_costs_nothing_after_the_first_version(save):
    base, adapter = MIB // 2, 1000
    written = save(*({"base": (base, 0), "adapter": (adapter, step)} for step in range(1, 5)))
    assert written[0] > 4 * base
    assert all(4 * adapter < each < 4 * adapter + 400 for each in written[1:])


def test_a_version_without_any_change_writes_no_pack(save):
    assert save(*[{"base": (1000, 0), "n": (3, 1)}] * 3)[1:] == [0, 0]


def test_a_frozen_minority_is_written_once_more_into_a_pack_of_its_own(save):
    base, rest = MIB // 2, MIB
    written = save(*({"base": (base, 0), "rest": (rest, 7 * step)} for step in range(1, 5)))
    assert written[1] > 4 * (base + rest)
    assert all(4 * rest < each < 4 * rest + 400 for each in written[2:])


def test_a_small_frozen_minority_goes_with_the_rest(save, files):
    save(*({"base": (100, 0), "rest": (1000, 7 * step)} for step in range(1, 4)))
    assert len(files("packs/")) == 3


def test_a_tensor_that_moved_to_another_name_or_shape_is_not_written_again(open_store, snapshot, put, files):
    store, weight = open_store(), torch.randn(100)
    put(
        store,
        snapshot(step=1, tree={"a": Leaf(weight)}),
        snapshot(step=2, tree={"b/c": Leaf(weight.view(4, 25))}),
    )
    assert len(files("packs/")) == 1
    assert torch.equal(store.load().tree["b/c"].value, weight.view(4, 25))


def test_rotation_frees_what_only_rotated_versions_needed(open_store, snapshot, put, files, run):
    store, base = open_store(keep=Keep(last=2)), torch.randn(MIB // 2)
    for step in range(1, 6):
        put(store, snapshot(step=step, tree={"base": Leaf(base), "a": Leaf(torch.full((99,), float(step)))}))
    # The base's, and those of the two newest versions.
    assert len(files("packs/")) == 3
    assert len(files("manifests/")) == 2
    assert torch.equal(open_store().load().tree["base"].value, base)


def test_a_resumed_run_goes_on_sharing(open_store, snapshot, put, files):
    base = torch.randn(MIB // 2)
    for step in (1, 2, 3):
        store = open_store()
        if step > 1:
            store.load()
        put(store, snapshot(step=step, tree={"base": Leaf(base), "n": Leaf(torch.tensor(step))}))
    sizes = [info.bytes for info in store.list()]
    assert min(sizes) > base.nbytes
    assert len(files("packs/")) == 3


@pytest.mark.parametrize("how", ["missing", "cut short"])
def test_a_pack_that_is_not_whole_any_more_is_not_shared(open_store, snapshot, put, run, how, equal):
    store = open_store()
    put(store, snapshot(step=1))
    (pack,) = (run.folder / "versions/packs").iterdir()
    if how == "missing":
        pack.unlink()
    else:
        pack.write_bytes(pack.read_bytes()[:-1])
    put(store, snapshot(step=2))
    assert equal(store.load(), snapshot(step=2))
    assert store.verify("1")


keys = st.tuples(st.integers(0, 15).map(lambda n: n.to_bytes(16, "big")), st.sampled_from([1, 10, MIB]))


@given(
    wanted=st.lists(keys, unique_by=lambda key: key[0], max_size=12),
    known=st.dictionaries(keys, st.sampled_from("PQR"), max_size=12),
    gone=st.sets(st.sampled_from("PQR")),
    extra=st.integers(0, 3 * MIB),
)
def test_whatever_is_wanted_is_reused_or_written_once_and_no_pack_is_mostly_waste(wanted, known, gone, extra):
    packs, offsets = {}, dict.fromkeys("PQR", 0)
    blobs = {}
    for key, pack in known.items():
        blobs[key] = Blob(key[0], pack, offsets[pack], key[1])
        offsets[pack] += key[1]
    packs = {
        pack: PackSize(size + extra + 100, size + extra) for pack, size in offsets.items() if pack not in gone
    }
    placed = place(wanted, blobs, packs)
    written = [key for keys in placed.written for key in keys]
    assert sorted([*placed.reused, *written]) == sorted(wanted)
    assert all(placed.written)
    for pack in {blob.pack for blob in placed.reused.values()}:
        used = sum(key[1] for key, blob in placed.reused.items() if blob.pack == pack)
        assert 2 * used >= packs[pack].data
    for key in written:
        if key in blobs and blobs[key].pack in packs:
            # It is written once more only because most of its pack is waste.
            used = sum(each[1] for each in wanted if each in blobs and blobs[each].pack == blobs[key].pack)
            assert 2 * used < packs[blobs[key].pack].data
    # What is unchanged has a pack of its own where that is worth one, which the next version uses whole.
    for keys_ in placed.written:
        unchanged = [key in blobs for key in keys_]
        assert all(unchanged) or not any(unchanged) or sum(k[1] for k in keys_ if k in blobs) < MIB
