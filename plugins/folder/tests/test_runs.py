"""The store in whole runs of tiny components."""

from __future__ import annotations

import pytest
import torch

import nlpkernel
from nlpkernel.errors import CheckpointError
from nlpkernel.events import RunStarted, VersionSaved
from nlpkernel_folder.component import Folder
from nlpkernel_sdk.plans import record, tiny_plan

SECTIONS = {
    "train": {"steps": 12, "evaluate": {"every": 4}},
    "checkpoint": {"use": "folder", "every": 4, "keep": {"last": 2, "best": 1}, "fsync": False},
}


def store_of(run, folder):
    return run.ask(Folder(), "open_store", run=run, folder=folder)


def test_a_run_saves_when_due_and_at_its_end_and_keeps_what_the_plan_says(tmp_path, run):
    plan = tiny_plan(train={"steps": 10}, checkpoint={"use": "folder", "every": 4, "keep": {"last": 2}})
    saved = [event for event in record(plan, tmp_path) if isinstance(event, VersionSaved)]
    assert [event.version for event in saved] == ["step-00000004", "step-00000008", "step-00000010"]
    listed = store_of(run, tmp_path / "tiny").list()
    assert [info.name for info in listed] == ["step-00000008", "step-00000010"]
    assert [info.bytes for info in listed] == [event.bytes for event in saved[1:]]


def test_the_best_version_stays_in_a_run(tmp_path, run):
    nlpkernel.run(tiny_plan(**SECTIONS), runs_folder=tmp_path)
    listed = store_of(run, tmp_path / "tiny").list()
    losses = {info.step: info.metrics["validation/loss"] for info in listed}
    assert set(losses) >= {8, 12}
    assert min(losses.values()) < float("inf")


def test_a_resumed_run_ends_bitwise_as_the_unbroken_one(tmp_path, run):
    plan = tiny_plan(**SECTIONS)
    nlpkernel.run(plan, runs_folder=tmp_path / "whole")
    for event in nlpkernel.train(plan, runs_folder=tmp_path / "broken"):
        if isinstance(event, VersionSaved):
            break
    started = [
        event
        for event in nlpkernel.train(plan, runs_folder=tmp_path / "broken", resume="newest")
        if isinstance(event, RunStarted)
    ]
    assert started[0].start.step == 4
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
    path = tmp_path / "tiny/versions/step-00000012/tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="FLD003 step-00000012 is damaged") as caught:
        nlpkernel.run(plan, runs_folder=tmp_path, resume="newest")
    assert "the newest sound version is step-00000008" in str(caught.value)
    assert nlpkernel.run(plan, runs_folder=tmp_path, resume="step-00000008").progress.step == 12
