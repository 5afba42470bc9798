"""A dry run: two steps, an evaluation, a save; nothing is kept, and the reckoning is right."""

from __future__ import annotations

import tempfile

import pytest

import nlpkernel
from nlpkernel.engine.rehearsal import Rehearsed, rehearse
from nlpkernel.errors import TrainingError
from nlpkernel_sdk.notes import BOOKS


def rehearsed(bench, monkeypatch, *monitors, **sections) -> Rehearsed:
    monkeypatch.chdir(bench.folder)
    monkeypatch.setattr(tempfile, "tempdir", str(bench.folder))
    BOOKS.clear()
    return rehearse(nlpkernel.Plan.of(bench.values(*monitors, **sections)))


def spy(bench, word):
    return [entry[1:] for entry in BOOKS["spy"] if entry[0] == word]


def test_nothing_is_kept(bench, monkeypatch):
    rehearsed(bench, monkeypatch, checkpoint=bench.use("Shelf", every=1))
    assert list(bench.folder.iterdir()) == []


@pytest.mark.parametrize("every", [None, 1, 2, 30])
def test_two_steps_one_evaluation_and_one_save_are_made(bench, monkeypatch, every):
    train = {"steps": 100, "log": {"every": 50}, "evaluate": {"every": every} if every else {}}
    found = rehearsed(bench, monkeypatch, train=train, checkpoint=bench.use("Shelf"))
    assert spy(bench, "applied") == [(1, True), (2, True)]
    assert len([use for (use,) in spy(bench, "enter") if use == "evaluate"]) == (2 if every == 1 else 1)
    assert found.length == 100
    assert found.bytes > 0
    assert found.save > 0
    assert found.evaluation > 0
    assert found.evaluations == {None: 1, 1: 100, 2: 50, 30: 4}[every]


def test_the_step_is_measured_without_evaluation_and_save(bench, monkeypatch, clock):
    monitors = bench.use("Slow"), bench.use("Lagging", steps={"1": 0.5, "2": 0.5})
    train = {"steps": 10, "evaluate": {"every": 1}}
    found = rehearsed(bench, monkeypatch, *monitors, train=train, checkpoint=bench.use("Shelf", every=1))
    assert (found.step, found.evaluation, found.save) == (0.5, 3.0, 0.0)
    assert found.total == 10 * 0.5 + 10 * 3.0


def test_the_time_of_a_step_is_that_of_the_second(bench, monkeypatch, clock):
    """The first one sets everything up."""
    lagging = bench.use("Lagging", steps={"1": 8.0, "2": 0.5})
    assert rehearsed(bench, monkeypatch, lagging, train={"steps": 10, "log": {"every": 50}}).step == 0.5


def test_a_plan_of_one_step_can_be_rehearsed(bench, monkeypatch):
    found = rehearsed(bench, monkeypatch, train={"steps": 1})
    assert found.length == 1
    assert found.step > 0
    assert found.bytes == 0
    assert "the plan saves nothing" in found.text()


def test_splits_are_added_up(bench, monkeypatch, clock):
    train = {"steps": 4, "evaluate": {"every": 1, "start": True, "splits": ["train", "validation"]}}
    found = rehearsed(bench, monkeypatch, bench.use("Slow"), train=train)
    assert found.evaluation == 6.0
    assert found.evaluations == 5


def test_what_would_end_the_run_ends_its_rehearsal(bench, monkeypatch):
    with pytest.raises(TrainingError, match="NK403"):
        rehearsed(bench, monkeypatch, data={"poisoned": list(range(64))}, train={"log": {"every": 50}})
    assert list(bench.folder.iterdir()) == []
