"""Versions saved, listed and loaded."""

from __future__ import annotations

import os
import re
import stat
import threading

import pytest
import torch

from nlpkernel.errors import CheckpointError
from nlpkernel.events import Notice
from nlpkernel.state import Leaf, PerWorker
from nlpkernel_store.component import Keep


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_version_comes_back_as_it_was(open_store, snapshot, put, equal, asynchronous):
    store = open_store(asynchronous=asynchronous)
    made = snapshot(step=200, seed=3, loss=0.5)
    (info,) = put(store, made)
    assert info.step == 200
    assert re.fullmatch(r"200-[0-9a-f]{12}", info.name)
    assert info.metrics == {"validation/loss": 0.5}
    assert store.list() == [info]
    assert store.verify(info.name) == []
    for reader in (store, open_store(), open_store(write=False)):
        assert equal(reader.load(), made)
        assert equal(reader.load(info.name), made)


def test_a_snapshot_may_change_once_save_returned(open_store, snapshot, put, monkeypatch):
    weight, many = torch.zeros(1000), [torch.full((50,), float(n)) for n in range(20)]
    gate = threading.Event()
    store = open_store()
    names = store.catalog.files.names
    monkeypatch.setattr(store.catalog.files, "names", lambda prefix="": (gate.wait(), names(prefix))[1])
    tree = {"w": Leaf(weight), "list": Leaf([1, 2]), **{f"m{n}": Leaf(one) for n, one in enumerate(many)}}
    store.save(snapshot(tree=tree))
    weight.fill_(1)
    tree["list"].value.append(3)
    for each in many:
        each.zero_()
    gate.set()
    store.settle(wait=True)
    back = open_store().load().tree
    assert not bool(back["w"].value.any())
    assert back["list"].value == [1, 2]
    assert all(bool((back[f"m{n}"].value == n).all()) for n in range(20))


def test_a_second_save_waits_for_the_first_and_nothing_is_lost(open_store, snapshot, monkeypatch):
    store = open_store()
    create, running, most = store.catalog.files.create, [], []

    def watched(name, chunks, **size):
        running.append(name)
        most.append(len(running))
        try:
            return create(name, chunks, **size)
        finally:
            running.remove(name)

    monkeypatch.setattr(store.catalog.files, "create", watched)
    for step in range(1, 9):
        store.save(snapshot(step=step, seed=step))
    assert [saved.step for saved in store.settle(wait=True)] == list(range(1, 9))
    assert most == [1] * 16
    assert [info.step for info in store.list()] == list(range(1, 9))


def test_settle_tells_each_save_once_and_close_waits(open_store, snapshot, equal):
    store = open_store()
    store.save(snapshot(step=1))
    store.close()
    assert equal(open_store().load(), snapshot(step=1))
    assert [saved.step for saved in store.settle()] == [1]
    assert store.settle() == []
    assert store.settle(wait=True) == []


def test_leaves_keep_their_order_and_an_empty_tree_is_a_version(open_store, snapshot, put):
    store = open_store()
    tree = {"z": Leaf(1), "a": Leaf(torch.ones(2)), "m": Leaf(None, PerWorker(0))}
    put(store, snapshot(step=1, tree=tree))
    assert list(store.load().tree) == ["z", "a", "m"]
    made = snapshot(step=2)
    put(store, type(made)(step=2, tree={}, artifacts={}, facts={}))
    assert store.load().tree == {}


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "ü \n", "CON", "%2E", ".hidden", "a\\b"])
@pytest.mark.parametrize("size", [3, 100_000])
def test_any_artifact_name_comes_back_and_stays_inside(open_store, snapshot, put, run, name, size):
    store, made = open_store(), snapshot()
    put(store, type(made)(step=1, tree={}, artifacts={name: b"x" * size}, facts={}))
    assert store.load().artifacts == {name: b"x" * size}
    assert [path.name for path in run.folder.iterdir()] == ["versions"]


def test_large_plain_data_and_artifacts_are_stored_once(open_store, snapshot, put, files):
    store, made = open_store(), snapshot()
    for step in (1, 2, 3):
        tree = {"seen": Leaf(list(range(50_000))), "n": Leaf(step)}
        put(store, type(made)(step=step, tree=tree, artifacts={"t": b"y" * 70_000}, facts={}))
    assert len(files("packs/")) == 1
    assert store.load().tree["seen"].value == list(range(50_000))
    assert store.load().tree["n"].value == 3


def test_an_artifact_without_a_name_is_refused(open_store, snapshot):
    made = snapshot()
    with pytest.raises(CheckpointError, match="STO001"):
        open_store().save(type(made)(step=1, tree={}, artifacts={"": b""}, facts={}))


def test_a_value_that_cannot_be_stored_is_refused_at_save_and_leaves_nothing(open_store, snapshot, run):
    store = open_store()
    with pytest.raises(CheckpointError, match=r"STO001 data/state\['seen'\] cannot be stored.*set"):
        store.save(snapshot(tree={"data/state": Leaf({"seen": {1}})}))
    assert store.settle(wait=True) == []
    assert list(run.folder.iterdir()) == []


def test_facts_and_metrics_are_as_strict(open_store, snapshot):
    made, store = snapshot(), open_store()
    with pytest.raises(CheckpointError, match=r"facts\['lock'\]\[0\] cannot be stored"):
        store.save(type(made)(step=1, tree={}, artifacts={}, facts={"lock": [object()]}))
    with pytest.raises(CheckpointError, match="a metric is a number or None, not str"):
        store.save(type(made)(step=1, tree={}, artifacts={}, facts={"metrics": {"loss": "1"}}))


def test_opening_makes_no_folder(open_store, run):
    store = open_store()
    assert store.list() == []
    assert list(run.folder.iterdir()) == []
    with pytest.raises(CheckpointError, match="STO004 there is no version in"):
        store.load()


def test_all_files_are_readable_by_whom_the_umask_lets(open_store, snapshot, put, run):
    put(open_store(), snapshot())
    found = [path for path in (run.folder / "versions").rglob("*") if path.is_file()]
    assert len({stat.S_IMODE(path.stat().st_mode) for path in found}) == 1


def test_fsync_can_be_switched_off_and_reaches_every_file_when_on(open_store, snapshot, put, monkeypatch):
    synced, real = [], os.fsync

    def watch(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    put(open_store(fsync=False), snapshot(step=1))
    assert synced == []
    put(open_store(fsync=True), snapshot(step=2, seed=1))
    names = [os.path.basename(path) for path in synced]
    # The pack aside and its folder, before the manifest aside and its folder: the commit is the last.
    assert [name if name in ("packs", "manifests") else "aside" for name in names if name != "versions"] == [
        "aside", "packs", "aside", "manifests",
    ]  # fmt: skip


def test_files_of_others_stay_and_are_told_of_once(open_store, snapshot, put, run, files):
    heard = []
    run.bus.on(Notice, heard.append)
    put(open_store(), snapshot(step=1))
    versions = run.folder / "versions"
    for name in ("notes.txt", "packs/mine.safetensors", "manifests/1.msgpack"):
        (versions / name).write_text("mine")
    store = open_store(keep=Keep(last=1))
    store.load()
    put(store, snapshot(step=2, seed=2), snapshot(step=3, seed=3))
    assert {"notes.txt", "packs/mine.safetensors", "manifests/1.msgpack"} <= set(files())
    assert [info.step for info in store.list()] == [3]
    assert len(heard) == 1
    assert "files that are not the store's, which stay: manifests/1.msgpack, notes.txt" in heard[0].message


def test_tensors_loaded_before_a_rotation_keep_their_values(open_store, snapshot, put):
    store = open_store(keep=Keep(last=1))
    put(store, snapshot(step=5, seed=1))
    loaded = store.load()
    put(store, snapshot(step=6, seed=2))
    assert torch.equal(loaded.tree["model/w"].value, snapshot(seed=1).tree["model/w"].value)
