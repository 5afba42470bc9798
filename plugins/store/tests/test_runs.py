"""The store in whole runs of tiny components."""

from __future__ import annotations

import pytest
import torch

import nlpkernel
from nlpkernel.errors import CheckpointError
from nlpkernel.events import RunStarted, VersionSaved
from nlpkernel_sdk.plans import record, tiny_plan
from nlpkernel_store.component import Store

SECTIONS = {
    "train": {"steps": 12, "evaluate": {"every": 4}},
    "checkpoint": {"use": "store", "every": 4, "keep": {"last": 2, "best": 1}, "fsync": False},
}


def store_of(run, folder):
    return run.ask(Store(), "open_store", run=run, folder=folder, write=False)


def test_a_run_saves_when_due_and_at_its_end_and_keeps_what_the_plan_says(tmp_path, run):
    plan = tiny_plan(train={"steps": 10}, checkpoint={"use": "store", "every": 4, "keep": {"last": 2}})
    saved = [event for event in record(plan, tmp_path) if isinstance(event, VersionSaved)]
    assert [event.version.split("-")[0] for event in saved] == ["4", "8", "10"]
    assert [event.progress.step for event in saved] == [4, 8, 10]
    listed = store_of(run, tmp_path / "tiny").list()
    assert [info.name for info in listed] == [event.version for event in saved[1:]]
    assert [info.bytes for info in listed] == [event.bytes for event in saved[1:]]


def test_the_best_version_stays_in_a_run(tmp_path, run):
    nlpkernel.run(tiny_plan(**SECTIONS), runs_folder=tmp_path)
    losses = {info.step: info.metrics["validation/loss"] for info in store_of(run, tmp_path / "tiny").list()}
    assert set(losses) >= {8, 12}
    assert min(losses.values()) < float("inf")


def test_a_resumed_run_ends_bitwise_as_the_unbroken_one(tmp_path, run):
    plan = tiny_plan(**SECTIONS)
    nlpkernel.run(plan, runs_folder=tmp_path / "whole")
    for event in nlpkernel.train(plan, runs_folder=tmp_path / "broken"):
        if isinstance(event, VersionSaved):
            break
    rest = list(nlpkernel.train(plan, runs_folder=tmp_path / "broken", resume="newest"))
    (started,) = [event for event in rest if isinstance(event, RunStarted)]
    assert 0 < started.start.step < 12
    whole = store_of(run, tmp_path / "whole/tiny").load().tree
    broken = store_of(run, tmp_path / "broken/tiny").load().tree
    assert list(whole) == list(broken)
    for path, leaf in whole.items():
        if isinstance(leaf.value, torch.Tensor):
            assert torch.equal(leaf.value, broken[path].value), path
        else:
            assert leaf == broken[path], path


def test_a_damaged_version_ends_a_resume_with_the_code_and_the_way_out(tmp_path):
    plan = tiny_plan(**SECTIONS)
    nlpkernel.run(plan, runs_folder=tmp_path)
    path = max((tmp_path / "tiny/versions/packs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"STO003 12-.* is damaged") as caught:
        nlpkernel.run(plan, runs_folder=tmp_path, resume="newest")
    assert "the newest sound version is 8-" in str(caught.value)
    assert nlpkernel.run(plan, runs_folder=tmp_path, resume="8").progress.step == 12


def test_a_version_that_cannot_be_written_ends_the_run_or_is_told_by_policy(tmp_path, monkeypatch):
    from nlpkernel.events import VersionFailed
    from nlpkernel_store.places.local import Local

    create = Local.create

    def full(self, name, chunks, **size):
        if "-0-0.safetensors" in name:
            raise OSError(28, "No space left on device")
        return create(self, name, chunks, **size)

    monkeypatch.setattr(Local, "create", full)
    sections = {"every": 4, "fsync": False, "retries": 0}
    with pytest.raises(
        CheckpointError, match=r"STO002 the version of step 4 could not be written.*No space left"
    ):
        nlpkernel.run(
            tiny_plan(train={"steps": 8}, checkpoint={"use": "store", **sections}), runs_folder=tmp_path
        )
    plan = tiny_plan(
        name="other", train={"steps": 8}, checkpoint={"use": "store", "on_failure": "continue", **sections}
    )
    events = record(plan, tmp_path)
    (failed,) = [event for event in events if isinstance(event, VersionFailed)]
    assert failed.progress.step == 4
    assert "No space left on device" in failed.error
    assert [event.progress.step for event in events if isinstance(event, VersionSaved)] == [8]


def test_a_component_whose_state_cannot_be_stored_is_named_with_its_leaf(tmp_path):
    (tmp_path / "odd.py").write_text(
        "from nlpkernel import component, hookimpl\n"
        "class State:\n"
        "    def state(self): return {'seen': {1, 2}}\n"
        "    def load_state(self, state): pass\n"
        "@component\n"
        "class Odd:\n"
        "    @hookimpl\n"
        "    def component_state(self): return State()\n"
        "    @hookimpl\n"
        "    def subscribe(self): pass\n"
    )
    plan = tiny_plan(base=tmp_path, checkpoint={"use": "store"}, monitor=[{"use": "./odd.py:Odd"}])
    with pytest.raises(CheckpointError) as caught:
        nlpkernel.run(plan, runs_folder=tmp_path)
    problem = caught.value.problems[0]
    assert problem.message == "component/monitor[0]/seen cannot be stored: it is of type builtins.set"
    assert "odd.py" in problem.owner


def test_a_resume_from_the_only_version_names_its_damage_and_not_its_absence(tmp_path):
    plan = tiny_plan(checkpoint={"use": "store", "fsync": False})
    nlpkernel.run(plan, runs_folder=tmp_path)
    (path,) = (tmp_path / "tiny/versions/manifests").iterdir()
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        CheckpointError, match=r"STO003 \d+-\w+ is damaged: the manifest has SHA-256"
    ) as caught:
        nlpkernel.run(plan, runs_folder=tmp_path, resume="newest")
    assert caught.value.problems[0].place.file.endswith(path.name)
    with pytest.raises(CheckpointError, match="STO003"):
        nlpkernel.open_model(tmp_path / "tiny")
