"""SIGINT and SIGTERM in child processes: the step ends, a version is saved, and a resume is exact (case P3)."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
import torch

from nlpkernel.events import Evaluated

#: What the command line does with a run: see `nlpkernel.cli.run`.
SOURCE = """
import json, torch
torch.set_num_threads(1)
from pathlib import Path
from nlpkernel.cli.run import finish
from nlpkernel.engine.api import Loop
from nlpkernel.plan import Plan
plan = Plan.of(json.loads(arguments[0]))
try:
    sys.exit(finish(Loop(plan, Path(plan.name), quiet=True)))
except KeyboardInterrupt:
    sys.exit(130)
"""


def plan(bench, *monitors) -> dict[str, Any]:
    sections = {
        "train": {"steps": 6, "evaluate": {"every": 3}, "log": {"every": 2}},
        "model": {"hidden": 4, "dropout": 0.5},
        "checkpoint": bench.use("Shelf", every=3),
    }
    return bench.values(*monitors, **sections)


def code(number: int) -> int:
    return 128 + number


numbers = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])


@numbers
@pytest.mark.parametrize("where", ["step", "evaluation", "save"])
def test_case_p3_the_first_signal_ends_the_run_after_its_step_saved(bench, number, where):
    values = plan(bench, bench.use("Kill", where=where, number=int(number)))
    assert bench.fork(SOURCE, json.dumps(values)) == (code(number), "")
    report = json.loads((bench.folder / "tiny" / "report.json").read_text())
    assert report["status"] == "interrupted"
    assert report["reason"] == number.name
    assert report["progress"]["step"] == 3
    assert report["version"] == "step-0003"
    harmless = bench.use("Kill", where=where, number=int(number), step=100)
    sections = plan(bench, harmless)
    sections.pop("monitor")
    whole = bench.run(harmless, **{**sections, "name": "whole"})
    rest = bench.run(harmless, **sections, resume="newest")
    assert rest.losses == whole.losses[3:]
    assert all(torch.equal(rest.weights[name], whole.weights[name]) for name in whole.weights)
    assert rest.report.metrics == whole.report.metrics
    assert [event.progress.step for event in rest.of(Evaluated)] == [6]


@numbers
def test_case_p3_the_second_signal_leaves_at_once_with_an_older_version_valid(bench, number):
    values = plan(bench, bench.use("Kill", where="step", number=int(number), step=5, times=2))
    assert bench.fork(SOURCE, json.dumps(values)) == (code(number), "")
    assert not (bench.folder / "tiny" / "report.json").exists()
    store = bench.shelf(bench.folder / "tiny")
    assert [info.step for info in store.list()] == [3]
    assert store.load().step == 3


@numbers
def test_a_signal_before_the_first_step_ends_what_goes_on(bench, number):
    values = plan(bench, bench.use("Closer", name="a"), bench.use("Kill", where="open", number=int(number)))
    assert bench.fork(SOURCE, json.dumps(values)) == (code(number), "")
    assert not (bench.folder / "tiny" / "report.json").exists()


def test_a_run_in_the_caller_s_own_process_reports_the_interruption(bench):
    kill = bench.use("Kill", where="step", number=int(signal.SIGINT), step=2)
    sections = plan(bench)
    sections.pop("monitor")
    ran = bench.run(kill, **sections)
    assert ran.error is None
    assert (ran.report.status, ran.report.reason) == ("interrupted", "SIGINT")
    assert ran.report.version == "step-0002"
    # Who sends a signal does not want to wait for what was not due.
    assert ran.of(Evaluated) == []
