"""The event file of a whole run of tiny components."""

from __future__ import annotations

import math

import pytest

import nlpkernel
from nlpkernel.errors import TrainingError, UsageError
from nlpkernel_jsonl import read_events
from nlpkernel_sdk.plans import record, tiny_plan


def test_the_file_holds_every_event_of_a_run_in_order(tmp_path):
    events = record(tiny_plan(monitor=[{"use": "jsonl"}]), tmp_path)
    read = list(read_events(tmp_path / "tiny/events.jsonl"))
    told = [event for event in events if type(event).__name__ != "StepCompleted"]
    assert [event["event"] for event in read] == [type(event).__name__ for event in told]
    assert [event["time"] for event in read] == [event.time for event in told]
    assert read[-1]["event"] == "RunEnded"
    assert read[-1]["progress"] == told[-1].progress._asdict()


def test_case_l5_a_run_that_ends_over_nan_tells_the_window_and_how_it_ended(tmp_path):
    plan = tiny_plan(data={"poisoned": [3]}, train={"steps": 20}, monitor=[{"use": "jsonl"}])
    with pytest.raises(TrainingError):
        nlpkernel.run(plan, runs_folder=tmp_path)
    read = list(read_events(tmp_path / "tiny/events.jsonl"))
    skipped = next(event for event in read if event["event"] == "WindowSkipped")
    assert skipped["reason"] == "non-finite"
    assert read[-1]["status"] == "failed"
    losses = [event["metrics"]["loss"] for event in read if event["event"] == "Logged"]
    assert all(loss is None or math.isfinite(loss) for loss in losses)


def test_a_run_that_fails_to_open_its_event_file_ends_before_its_first_step(tmp_path):
    (tmp_path / "taken").mkdir()
    plan = tiny_plan(monitor=[{"use": "jsonl", "path": str(tmp_path / "taken")}])
    with pytest.raises(UsageError, match="JSL001") as caught:
        nlpkernel.run(plan, runs_folder=tmp_path)
    assert "jsonl of nlpkernel-plugin-jsonl" in str(caught.value)
