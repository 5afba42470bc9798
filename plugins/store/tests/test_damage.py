"""Case K1: files of a version that are not what was written."""

from __future__ import annotations

import random
import shutil

import pytest
import torch
import xxhash

from nlpkernel.errors import CheckpointError
from nlpkernel.state import Leaf
from nlpkernel_store import manifest as manifests
from nlpkernel_store.component import Keep
from nlpkernel_store.plain import decode, encode


@pytest.fixture
def two(open_store, snapshot, put, run):
    """A store of two versions, and the files of the newer: pack and manifest."""
    store = open_store()
    put(store, snapshot(step=1, seed=1), snapshot(step=2, seed=2))
    (manifest,) = (run.folder / "versions/manifests").glob("000002-*")
    (pack,) = (run.folder / "versions/packs").glob("*-1-0.safetensors")
    return store, pack, manifest


def test_case_k1_a_flipped_byte_is_found_and_file_leaf_and_both_digests_are_named(two, equal, snapshot):
    store, path, _ = two
    old, new = (info.name for info in store.list())
    data = path.read_bytes()
    start = int.from_bytes(data[:8], "little") + 8
    for position in random.Random(1).sample(range(start, len(data)), 12):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        path.write_bytes(flipped)
        leaf, at, size = ("model/piece", 0, 32) if position >= start + 48 else ("model/w", 0, 48)
        at = start + (48 if leaf == "model/piece" else 0)
        found, recorded = (xxhash.xxh3_128_hexdigest(bytes(each[at : at + size])) for each in (flipped, data))
        with pytest.raises(CheckpointError) as caught:
            store.load()
        (problem,) = caught.value.problems
        assert problem.code == "STO003"
        assert problem.place.file == str(path)
        assert problem.message == f"{new} is damaged: {leaf} has xxh3 {found}, and {recorded} was recorded"
        assert problem.hint == f"the newest sound version is {old}"
        assert store.verify(new) == [f"{path}: {leaf} has xxh3 {found}, and {recorded} was recorded"]
    assert equal(store.load(old), snapshot(step=1, seed=1))


def test_case_k1_every_flipped_byte_of_a_pack_is_found(two):
    store, path, _ = two
    _, new = (info.name for info in store.list())
    data = path.read_bytes()
    start = int.from_bytes(data[:8], "little") + 8
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        (line,) = store.verify(new)
        assert ("its header" if position < start else "model/") in line


def test_case_k1_every_flipped_byte_of_the_manifest_is_found(two):
    store, _, path = two
    old, new = (info.name for info in store.list())
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        reader = type(store.catalog)(store.catalog.files)
        store.catalog._known.clear()
        with pytest.raises(
            CheckpointError, match=f"STO003 {new} is damaged: the manifest has SHA-256"
        ) as caught:
            store.load()
        assert f"the newest sound version is {old}" in str(caught.value)
        assert len(reader.readable()) == 1
        assert len(store.verify(new)) == 1
    path.write_bytes(data)
    assert store.verify(new) == []


@pytest.mark.parametrize("which", [1, 2], ids=["pack", "manifest"])
@pytest.mark.parametrize("verify", [True, False])
def test_case_k1_a_file_cut_short_lengthened_or_gone_is_found_even_without_hashing(
    open_store, two, which, verify
):
    path = two[which]
    data = path.read_bytes()
    _, new = (info.name for info in two[0].list())
    for content in (b"", data[:1], data[: len(data) // 2], data[:-1], data + b"\0", None):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        store = open_store(write=False, verify=verify)
        if which == 2 and content is None:
            # Without a manifest there is no version.
            assert [info.step for info in store.list()] == [1]
            assert store.load().step == 1
            continue
        with pytest.raises(CheckpointError, match=f"STO003 {new} is damaged") as caught:
            store.load()
        assert caught.value.problems[0].place.file == str(path)
        assert "the newest sound version is 1-" in caught.value.problems[0].hint
    path.write_bytes(data)
    assert open_store(write=False).load().step == 2


def test_all_damaged_leaves_are_named_at_once_and_very_many_are_counted(open_store, snapshot, put, run):
    store = open_store()
    put(store, snapshot(tree={f"w{n}": Leaf(torch.full((16,), float(n))) for n in range(30)}))
    (path,) = (run.folder / "versions/packs").iterdir()
    data = path.read_bytes()
    start = int.from_bytes(data[:8], "little") + 8
    path.write_bytes(data[:start] + bytes(byte ^ 1 for byte in data[start:]))
    with pytest.raises(CheckpointError) as caught:
        store.load()
    problems = caught.value.problems
    assert [problem.message.split()[3] for problem in problems[:20]] == [f"w{n}" for n in range(20)]
    assert "10 further damaged pieces" in problems[20].message
    assert len(store.verify("newest")) == 30


def test_the_offer_skips_damaged_versions(open_store, snapshot, put, run):
    store = open_store()
    put(store, *(snapshot(step=step, seed=step) for step in (1, 2, 3)))
    for count in (1, 2):
        (run.folder / f"versions/packs/{run.launch}-{count}-0.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="newest sound version is 1-"):
        store.load()
    (run.folder / f"versions/packs/{run.launch}-0-0.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no other version is sound"):
        store.load()


def test_damage_of_a_shared_pack_damages_all_that_share_it(open_store, snapshot, put, run):
    store, base = open_store(), torch.randn(1000)
    put(store, *(snapshot(step=n, tree={"base": Leaf(base), "n": Leaf(torch.tensor(n))}) for n in (1, 2)))
    pack = run.folder / f"versions/packs/{run.launch}-0-0.safetensors"
    data = bytearray(pack.read_bytes())
    data[-100] ^= 1
    pack.write_bytes(data)
    assert [len(store.verify(info.name)) for info in store.list()] == [1, 1]
    with pytest.raises(CheckpointError, match="no other version is sound"):
        store.load()


def test_without_hashing_a_flip_in_a_tensor_loads(open_store, two):
    _, path, _ = two
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert open_store(write=False, verify=False).load().step == 2


def test_a_newer_format_is_said_to_be_newer_and_is_neither_offered_nor_swept(two, open_store, files):
    store, _, path = two
    content = decode(path.read_bytes())
    data = encode(content | {"format": 2}, "x")
    entry = manifests.Entry(2, 2, manifests.hashlib.sha256(data).hexdigest())
    (path.parent.parent / entry.file).write_bytes(data)
    path.unlink()
    store = open_store()
    with pytest.raises(
        CheckpointError, match=r"STO005 2-.* has format 2, and this release reads formats up to 1"
    ):
        store.load()
    assert [info.step for info in store.list()] == [1]
    assert store.verify("newest") == [f"{entry.name}: format 2, and this release reads formats up to 1"]
    assert len(files("packs/")) == 2
    with pytest.raises(CheckpointError, match="STO004 there is no version '1'"):
        store.load("1")
    assert store.load(store.list()[0].name).step == 1


def test_versions_that_were_copied_elsewhere_still_load(two, open_store, run, tmp_path, equal, snapshot):
    shutil.copytree(run.folder / "versions", tmp_path / "elsewhere/versions")
    shutil.rmtree(run.folder)
    run.folder = tmp_path / "elsewhere"
    assert equal(open_store().load(), snapshot(step=2, seed=2))


def test_case_k1_every_flipped_byte_of_a_head_is_found(two, open_store, run):
    store, *_ = two
    store.catalog.set_head(store.catalog.entries()[0])
    head = run.folder / "versions/head"
    data = head.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        head.write_bytes(flipped)
        with pytest.raises(CheckpointError, match="head: STO003 its digest is not the recorded one"):
            open_store(write=False).load()
    head.write_bytes(data)
    assert open_store(write=False).load().step == 1


def test_a_head_that_names_nothing_is_an_error_not_another_version(two, open_store, run):
    store, *_ = two
    store.catalog.set_head(manifests.Entry(2, 2, "0" * 64))
    with pytest.raises(
        CheckpointError, match=r"head: STO003 it names '0{12}' as the version to go on from"
    ) as caught:
        open_store().load()
    assert "rollback" in str(caught.value)


def test_case_k1_versions_none_of_which_can_be_read_are_not_told_as_none(open_store, snapshot, put, run):
    put(open_store(), snapshot(step=1), snapshot(step=2, seed=2))
    first, second = sorted((run.folder / "versions/manifests").iterdir())
    whole = first.read_bytes()
    for path in (first, second):
        data = bytearray(path.read_bytes())
        data[50] ^= 1
        path.write_bytes(data)
    with pytest.raises(
        CheckpointError, match=r"STO003 2-\w+ is damaged: the manifest has SHA-256 (\w+), and"
    ) as caught:
        open_store(write=False).list()
    (problem,) = caught.value.problems
    assert problem.place.file == str(second)
    assert second.stem.rpartition("-")[2] in problem.message
    assert problem.hint == "no other version is sound"
    first.write_bytes(whole)
    assert [info.step for info in open_store(write=False).list()] == [1]


def test_versions_that_were_all_rotated_while_they_were_listed_are_no_damage(open_store, snapshot, put):
    store = open_store(keep=Keep(last=1))
    put(store, snapshot(step=1))
    reader = open_store(write=False)
    read = reader.catalog.files.read

    def rotated_first(name):
        if store.catalog.entries()[-1].step == 1:
            put(store, snapshot(step=2, seed=2))
        return read(name)

    reader.catalog.files.read = rotated_first
    assert [info.step for info in reader.list()] == [2]


def test_versions_of_a_newer_format_alone_are_not_told_as_none(two, open_store, run):
    _, _, path = two
    data = encode(decode(path.read_bytes()) | {"format": 2}, "x")
    for each in path.parent.iterdir():
        each.unlink()
    entry = manifests.Entry(2, 2, manifests.hashlib.sha256(data).hexdigest())
    (path.parent.parent / entry.file).write_bytes(data)
    with pytest.raises(CheckpointError, match="STO005"):
        open_store(write=False).list()
