from __future__ import annotations

import os
import platform
import stat
from hashlib import sha256

import pytest
import torch

from nlpkernel.errors import CheckpointError
from nlpkernel.events import Notice
from nlpkernel.state import Leaf
from nlpkernel_folder import layout
from nlpkernel_folder.component import Keep

HOST = sha256(platform.node().encode()).hexdigest()[:8]
#: More than any system gives out.
DEAD = 2**22 + 12345


def names(run):
    return sorted(entry.name for entry in (run.folder / "versions").iterdir())


def test_a_snapshot_comes_back_whole(open_store, snapshot, equal, run):
    saved = snapshot(step=200, seed=7, loss=1.5)
    store = open_store()
    store.save(saved)
    info = store.settle()[0].version
    assert (info.name, info.step, info.metrics) == ("step-00000200", 200, {"validation/loss": 1.5})
    files = [path for path in (run.folder / "versions").rglob("*") if path.is_file()]
    assert info.bytes == sum(path.stat().st_size for path in files)
    again = open_store()
    assert again.list() == [info]
    assert again.verify("step-00000200") == []
    assert equal(again.load(), saved)
    assert equal(again.load("step-00000200"), saved)


def test_versions_are_listed_by_step_and_the_newest_loads(open_store, snapshot):
    store = open_store()
    for step in (9, 123456789, 100, 20):
        store.save(snapshot(step=step))
    assert [info.step for info in store.list()] == [9, 20, 100, 123456789]
    assert store.load().step == 123456789


def test_a_state_without_tensors_or_without_anything_comes_back(open_store, snapshot):
    store = open_store()
    store.save(snapshot(step=1, tree={"a/b": Leaf(None)}))
    assert store.load().tree == {"a/b": Leaf(None)}


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "ü \n", "CON", "%2E", ".hidden", "a\\b"])
def test_any_artifact_name_comes_back_and_stays_inside_the_version(open_store, snapshot, run, name):
    store = open_store()
    made = snapshot()
    store.save(type(made)(step=1, tree={}, artifacts={name: b"content"}, facts={}))
    assert store.load().artifacts == {name: b"content"}
    assert names(run) == ["step-00000001"]
    assert len(list((run.folder / "versions/step-00000001/artifacts").iterdir())) == 1


def test_an_artifact_without_a_name_is_refused(open_store, snapshot):
    made = snapshot()
    with pytest.raises(CheckpointError, match="FLD001"):
        open_store().save(type(made)(step=1, tree={}, artifacts={"": b""}, facts={}))


def test_a_plain_value_that_cannot_be_stored_leaves_nothing_behind(open_store, snapshot, run):
    with pytest.raises(CheckpointError, match=r"FLD001 data/state\['seen'\] cannot be stored.*set"):
        open_store().save(snapshot(tree={"data/state": Leaf({"seen": {1}})}))
    assert not (run.folder / "versions").exists()


def test_facts_and_metrics_are_as_strict(open_store, snapshot):
    made = snapshot()
    store = open_store()
    with pytest.raises(CheckpointError, match=r"facts\['lock'\]\[0\] cannot be stored"):
        store.save(type(made)(step=1, tree={}, artifacts={}, facts={"lock": [object()]}))
    with pytest.raises(CheckpointError, match=r"a metric is a number or None, not str"):
        store.save(type(made)(step=1, tree={}, artifacts={}, facts={"metrics": {"loss": "1"}}))


def test_opening_makes_no_folder(open_store, run):
    store = open_store()
    assert store.list() == []
    assert list(run.folder.iterdir()) == []
    with pytest.raises(CheckpointError, match="FLD004 there is no version in"):
        store.load()


def test_a_version_that_does_not_exist_is_named_with_those_that_do(open_store, snapshot):
    store = open_store()
    store.save(snapshot(step=200))
    for ask in (store.load, store.verify):
        with pytest.raises(CheckpointError) as caught:
            ask("step-0000020")
        assert "FLD004 there is no version 'step-0000020'" in str(caught.value)
        assert "did you mean step-00000200?" in str(caught.value)


def test_a_reference_does_not_lead_out_of_the_folder(open_store, snapshot):
    store = open_store()
    store.save(snapshot(step=200))
    with pytest.raises(CheckpointError, match="FLD004"):
        store.load("../versions/step-00000200")


def test_all_files_are_readable_by_whom_the_umask_lets(open_store, snapshot, run):
    open_store().save(snapshot())
    files = [path for path in (run.folder / "versions").rglob("*") if path.is_file()]
    assert len({stat.S_IMODE(path.stat().st_mode) for path in files}) == 1


def test_last_and_best_stay_and_everything_stays_without_keep(open_store, snapshot, run):
    store = open_store(keep=Keep(last=2, best=1))
    losses = {1: 3.0, 2: 1.0, 3: 1.0, 4: float("nan"), 5: None, 6: float("-inf"), 7: 2.0}
    for step, loss in losses.items():
        store.save(snapshot(step=step, loss=loss))
    assert names(run) == ["step-00000002", "step-00000006", "step-00000007"]
    everything = open_store()
    for step in (8, 9, 10):
        everything.save(snapshot(step=step))
    assert len(names(run)) == 6


def test_best_follows_the_direction_of_the_main_metric(open_store, snapshot, run):
    store = open_store(keep=Keep(last=1, best=1))
    for step, value in enumerate([1.0, 3.0, 2.0], 1):
        store.save(snapshot(step=step, loss=value, mode="max"))
    assert names(run) == ["step-00000002", "step-00000003"]


def test_best_without_a_main_metric_is_refused_before_anything_is_written(open_store, snapshot, run):
    made = snapshot()
    with pytest.raises(CheckpointError, match="main metric"):
        open_store(keep=Keep(best=1)).save(type(made)(step=1, tree={}, artifacts={}, facts={}))
    assert not (run.folder / "versions").exists()


def test_rotation_counts_versions_of_the_process_before(open_store, snapshot, run):
    open_store(keep=Keep(last=2)).save(snapshot(step=1))
    resumed = open_store(keep=Keep(last=2))
    resumed.save(snapshot(step=2))
    resumed.save(snapshot(step=3))
    assert names(run) == ["step-00000002", "step-00000003"]


def test_rotation_touches_only_what_the_store_wrote(open_store, snapshot, run):
    heard = []
    run.bus.on(Notice, heard.append)
    store = open_store(keep=Keep(last=1))
    store.save(snapshot(step=1))
    versions = run.folder / "versions"
    (versions / "step-00000001/notes.txt").write_text("the good one")
    (versions / "mine").mkdir()
    (versions / "step-00000000").mkdir()
    (versions / "step-00000000/x").touch()
    for step in (2, 3):
        store.save(snapshot(step=step))
    assert names(run) == ["mine", "step-00000000", "step-00000001", "step-00000003"]
    assert [event.message for event in heard] == [
        "step-00000001 stays, because notes.txt in it is not this store's"
    ]
    assert store.verify("step-00000001") == []


def test_a_save_of_the_same_step_replaces_and_keeps_files_of_others(open_store, snapshot, equal, run):
    store = open_store()
    store.save(snapshot(step=5, seed=1))
    (run.folder / "versions/step-00000005/notes.txt").write_text("mine")
    newer = snapshot(step=5, seed=2)
    store = open_store()
    store.save(newer)
    info = store.settle()[0].version
    assert names(run) == ["step-00000005"]
    assert equal(store.load(), newer)
    assert store.list() == [info]
    assert (run.folder / "versions/step-00000005/notes.txt").read_text() == "mine"


def test_tensors_loaded_before_a_replacement_keep_their_values(open_store, snapshot):
    store = open_store()
    store.save(snapshot(step=5, seed=1))
    loaded = store.load()
    store.save(snapshot(step=5, seed=2))
    assert torch.equal(loaded.tree["model/w"].value, snapshot(seed=1).tree["model/w"].value)


def test_leftovers_of_dead_writers_go_and_those_of_live_ones_stay(open_store, snapshot, run):
    open_store().save(snapshot(step=1))
    versions = run.folder / "versions"
    gone = [
        f".tmp-{DEAD}-{HOST}00000000",
        f".tmp-{os.getpid()}-{HOST}00000000",
        f".tmp-1-{'0' * 8}11111111",
        f".was-step-00000001-{DEAD}-{HOST}00000000",
    ]
    stays = [f".tmp-{os.getppid()}-{HOST}00000000", f".tmp-{DEAD}-{'0' * 8}00000000", ".tmp-x", "other"]
    for name in gone + stays:
        (versions / name).mkdir()
        (versions / name / "tensors.safetensors").write_bytes(b"x")
    (versions / gone[3] / "notes.txt").touch()
    for path in (versions / gone[2], versions / gone[2] / "tensors.safetensors"):
        os.utime(path, (1e9, 1e9))
    open_store()
    assert names(run) == sorted(["step-00000001", *stays])
    assert (versions / "step-00000001/notes.txt").exists()


def test_a_version_that_a_dead_writer_had_begun_to_replace_counts_and_is_put_back(
    open_store, snapshot, equal, run
):
    reader = open_store()
    saved = snapshot(step=1)
    open_store().save(saved)
    versions = run.folder / "versions"
    (versions / "step-00000001").rename(versions / f".was-step-00000001-{DEAD}-{HOST}00000000")
    assert equal(reader.load(), saved)
    assert [info.name for info in reader.list()] == ["step-00000001"]
    assert equal(open_store().load("step-00000001"), saved)
    assert names(run) == ["step-00000001"]


def test_a_folder_that_is_being_written_right_now_is_left_alone(tmp_path):
    with layout.aside(tmp_path) as path:
        path.mkdir()
        assert layout.recover(tmp_path) == []
        assert path.is_dir()
    assert not path.exists()


def test_an_interrupted_save_leaves_nothing(open_store, snapshot, run, monkeypatch):
    store = open_store()
    store.save(snapshot(step=1))

    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.save(snapshot(step=2))
    assert names(run) == ["step-00000001"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(5, "Input/output error")])
def test_a_replacement_that_fails_half_way_puts_the_old_version_back(
    open_store, snapshot, equal, run, monkeypatch, error
):
    store, old = open_store(), snapshot(step=1, seed=1)
    store.save(old)
    real, renames = os.rename, []

    def fails(source, target):
        renames.append((source, target))
        if len(renames) == 2:
            raise error
        real(source, target)

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises((KeyboardInterrupt, CheckpointError)):
        store.save(snapshot(step=1, seed=2))
    assert len(renames) == 3
    assert names(run) == ["step-00000001"]
    assert equal(store.load(), old)


def test_fsync_can_be_switched_off_and_reaches_every_file_when_on(open_store, snapshot, run, monkeypatch):
    synced = []
    real = os.fsync

    def watch(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    open_store(fsync=False).save(snapshot(step=1))
    assert synced == []
    open_store().save(snapshot(step=2))
    written = {path.name for path in (run.folder / "versions/step-00000002").rglob("*")}
    assert written <= {os.path.basename(path) for path in synced}
    # The folder itself, aside and before the manifest's rename; then the list of versions.
    assert synced[-1] == str(run.folder / "versions")
    assert os.path.basename(synced[-2]).startswith(".tmp-")
    assert os.path.basename(synced[-3]) == "manifest.msgpack"


def test_a_run_of_several_workers_is_refused(open_store, run):
    run.world = 2
    with pytest.raises(CheckpointError, match="FLD006 the run has 2 workers"):
        open_store()
