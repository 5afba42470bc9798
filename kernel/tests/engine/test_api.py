"""`run`, and `train` as an iterator of events."""

from __future__ import annotations

import pytest
import torch

import nlpkernel
from nlpkernel.errors import CheckpointError, DataError, TrainingError, UsageError
from nlpkernel.events import Evaluated, Event, Logged, RunEnded, RunStarted, StepCompleted, VersionSaved
from nlpkernel_sdk import record, tiny_plan, tiny_values
from nlpkernel_sdk.notes import BOOKS


def test_run_gives_the_report_that_it_writes(bench):
    report = nlpkernel.run(tiny_plan(), runs_folder=bench.folder)
    assert report.status == "finished"
    assert report.reason == ""
    assert report.progress == (4, 4, 32, 128, 0.5)
    assert report.length == 4
    assert report.main == "validation/loss"
    assert report.best == report.metrics["validation/loss"]
    assert report.best_step == 4
    assert report.version is None
    written = nlpkernel.Report.read(bench.folder / "tiny" / "report.json")
    assert written == report


def test_record_gives_every_event_in_order(bench):
    train = {"steps": 4, "evaluate": {"every": 2, "start": True}, "log": {"every": 2}}
    events = record(tiny_plan(train=train, checkpoint=bench.use("Shelf", every=2)), bench.folder)
    kinds = [type(event).__name__ for event in events if type(event).__name__ != "Notice"]
    assert kinds == [
        "RunStarted",
        "Evaluated",
        *["StepCompleted"],
        *["StepCompleted", "Logged", "Evaluated", "VersionSaved"],
        *["StepCompleted"],
        *["StepCompleted", "Logged", "Evaluated", "VersionSaved"],
        "RunEnded",
    ]
    times = [event.time for event in events]
    assert times == sorted(times)


def test_events_come_while_the_run_goes_on(bench):
    plan = tiny_plan(train={"steps": 3})
    seen = []
    for event in nlpkernel.train(plan, runs_folder=bench.folder):
        seen.append(type(event))
        if isinstance(event, StepCompleted) and event.progress.step == 1:
            assert RunEnded not in seen
            assert not (bench.folder / "tiny" / "report.json").exists()
    assert (bench.folder / "tiny" / "report.json").exists()


def test_an_iteration_that_is_closed_early_is_saved_and_closed(bench):
    plan = tiny_plan(train={"steps": 100}, checkpoint=bench.use("Shelf"), monitor=[bench.use("Spy")])
    BOOKS.clear()
    for event in nlpkernel.train(plan, runs_folder=bench.folder):
        if isinstance(event, StepCompleted) and event.progress.step == 7:
            break
    report = nlpkernel.Report.read(bench.folder / "tiny" / "report.json")
    assert (report.status, report.reason) == ("stopped", "the caller took no more events")
    assert report.progress.step == 7
    assert report.version == "step-0007"
    assert BOOKS["spy"][-1][0] == "close"
    rest = list(nlpkernel.train(plan, runs_folder=bench.folder, resume="newest"))
    whole = record(tiny_plan(name="whole", train={"steps": 100}), bench.folder)
    losses = [float(event.sums["loss"]) for event in rest if isinstance(event, StepCompleted)]
    assert losses == [float(event.sums["loss"]) for event in whole if isinstance(event, StepCompleted)][7:]


def test_a_save_that_fails_when_the_iteration_is_closed_is_raised(bench):
    plan = tiny_plan(train={"steps": 9}, checkpoint=bench.use("Shelf", full=1))
    events = nlpkernel.train(plan, runs_folder=bench.folder)
    for event in events:
        if isinstance(event, StepCompleted):
            break
    with pytest.raises(CheckpointError, match="the shelf is full"):
        events.close()


def test_an_iteration_that_was_never_begun_did_nothing(bench):
    events = nlpkernel.train(tiny_plan(), runs_folder=bench.folder)
    del events
    assert list(bench.folder.iterdir()) == []


def test_what_ended_a_run_is_raised_after_its_last_event(bench):
    seen: list[Event] = []
    with pytest.raises(TrainingError):
        seen.extend(nlpkernel.train(tiny_plan(data={"poisoned": [*range(64)]}), runs_folder=bench.folder))
    assert isinstance(seen[-1], RunEnded)
    assert seen[-1].status == "failed"


def test_data_that_is_refused_leaves_no_report_of_a_run(bench):
    plan = tiny_plan(train={"partial": "drop", "batch": 1000})
    with pytest.raises(DataError):
        nlpkernel.run(plan, runs_folder=bench.folder)
    assert not (bench.folder / "tiny" / "report.json").exists()
    assert not (bench.folder / "tiny" / "lock.json").exists()


def test_an_existing_run_is_refused_unless_told(bench):
    plan = tiny_plan()
    nlpkernel.run(plan, runs_folder=bench.folder)
    with pytest.raises(UsageError, match="NK301"):
        nlpkernel.run(plan, runs_folder=bench.folder)
    assert nlpkernel.run(plan, runs_folder=bench.folder, overwrite=True).status == "finished"


def test_the_run_folder_holds_what_ran(bench):
    ran = bench.run(checkpoint=bench.use("Shelf"))
    assert sorted(path.name for path in ran.folder.iterdir()) == [
        ".owned",
        ".watched",
        "lock.json",
        "logs",
        "plan.toml",
        "report.json",
        "shelf",
    ]
    again = nlpkernel.Plan.load(ran.folder / "plan.toml")
    assert again.text() == nlpkernel.Plan.of(bench.values(checkpoint=bench.use("Shelf"))).text()


def test_the_first_event_says_what_runs(bench):
    ran = bench.run(model={"hidden": 3}, train={"steps": 16})
    (started,) = ran.of(RunStarted)
    assert (started.name, started.device, started.precision, started.world) == ("tiny", "cpu", "fp32", 1)
    assert started.parameters == 4 * 3 + 3 + 3 + 1
    assert started.start == (0, 0, 0, 0, 0.0)
    assert (started.steps, started.steps_per_epoch) == (16, 8)


def test_evaluation_at_the_start_is_of_untrained_weights(bench):
    ran = bench.run(train={"steps": 2, "evaluate": {"start": True}}, model={"value": 0.0})
    first, last = ran.of(Evaluated)
    assert first.progress.step == 0
    assert first.metrics["loss"] > last.metrics["loss"]
    assert (first.best, last.best) == (True, True)
    assert first.samples == 10


def test_the_clock_of_an_interval_stands_still_while_a_run_evaluates(bench, clock):
    lagging = bench.use("Lagging", steps={"1": 0.5, "3": 0.25})
    train = {"steps": 4, "evaluate": {"every": 2}, "log": {"every": 4}}
    ran = bench.run(bench.use("Slow"), lagging, train=train)
    assert [event.seconds for event in ran.of(Evaluated)] == [3.0, 3.0]
    assert [event.seconds for event in ran.of(Logged)] == [0.75]


def test_a_run_without_a_validation_split_has_no_metrics(bench):
    ran = bench.run(data={"validation": 0}, checkpoint=bench.use("Shelf"), train={"evaluate": {"every": 2}})
    assert ran.of(Evaluated) == []
    assert ran.report.metrics == {}
    assert ran.report.best is None
    assert len(ran.of(VersionSaved)) == 1


def test_other_splits_can_be_evaluated(bench):
    train = {"steps": 1, "evaluate": {"splits": ["train", "validation", "test"]}}
    ran = bench.run(train=train)
    assert [event.split for event in ran.of(Evaluated)] == ["train", "validation"]
    assert [event.samples for event in ran.of(Evaluated)] == [64, 10]
    assert [event.best for event in ran.of(Evaluated)] == [False, True]
    assert ran.report.metrics.keys() == {"train/loss", "validation/loss"}


def test_warnings_and_log_lines_are_in_the_log_of_the_run(bench):
    ran = bench.run(bench.use("Warner"))
    text = (ran.folder / "logs" / "rank-0.log").read_text()
    assert "UserWarning: look out" in text
    assert "INFO nlpkernel.nlpkernel_local_watching" in text
    assert "all is well" in text


def test_log_lines_reach_who_asked_for_them(bench, caplog):
    bench.run(bench.use("Warner"), name="unasked")
    assert "all is well" not in caplog.text
    caplog.set_level("INFO")
    bench.run(bench.use("Warner"), name="asked")
    assert "all is well" in caplog.text


def test_a_run_can_be_made_outside_the_main_thread(bench):
    """There Python allows no signal handlers."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(nlpkernel.run, tiny_plan(), runs_folder=bench.folder).result()
    assert report.status == "finished"


def test_tiny_values_lay_tables_over_the_tiny_ones():
    assert tiny_values(train={"epochs": 1.0})["train"] == {"batch": 8, "log": {"every": 1}, "epochs": 1.0}
    assert tiny_values(data={"rows": 3})["data"] == {"use": "tiny", "rows": 3}
    assert tiny_values(data={"use": "other", "x": 1})["data"] == {"use": "other", "x": 1}
    assert "data" not in tiny_values(data=None)
    assert tiny_values(monitor=["console"])["monitor"] == ["console"]


def test_gradients_are_cleared_after_each_step(bench):
    plan = tiny_plan(train={"steps": 2})
    from nlpkernel.engine.api import Loop

    for session in Loop(plan, bench.folder / "tiny").steps():
        assert all(parameter.grad is None for _, parameter in session.work.named)
        assert all(isinstance(parameter, torch.nn.Parameter) for _, parameter in session.work.named)
