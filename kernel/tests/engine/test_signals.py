"""SIGINT, SIGTERM, SIGUSR1 in child processes: the step ends, a version is saved, and a resume is exact (case P3)."""

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


numbers = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1], ids=["SIGINT", "SIGTERM", "SIGUSR1"]
)


@pytest.mark.parametrize(
    ("number", "where"),
    [
        *(
            (number, where)
            for number in (signal.SIGINT, signal.SIGTERM)
            for where in ("step", "evaluation", "save")
        ),
        (signal.SIGUSR1, "step"),
    ],
)
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


@pytest.mark.parametrize(
    ("number", "where", "step"),
    [
        (signal.SIGINT, "step", 5),
        (signal.SIGTERM, "step", 5),
        (signal.SIGUSR1, "step", 5),
        (signal.SIGTERM, "evaluation", 6),
        (signal.SIGINT, "save", 6),
    ],
)
def test_case_p3_the_second_signal_leaves_at_once_with_an_older_version_valid(bench, number, where, step):
    values = plan(bench, bench.use("Kill", where=where, number=int(number), step=step, times=2))
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_case_p3_a_signal_in_the_last_save_is_told_by_the_exit_code(bench, number):
    """There is no further step, and everything that was to be done is done."""
    values = plan(bench, bench.use("Kill", where="save", number=int(number), step=5))
    values["train"]["steps"] = 5
    assert bench.fork(SOURCE, json.dumps(values)) == (code(number), "")
    report = json.loads((bench.folder / "tiny" / "report.json").read_text())
    assert (report["status"], report["version"]) == ("finished", "step-0005")


def test_a_child_that_is_forked_while_a_run_goes_on_ends_by_a_signal_as_any_process(bench):
    """A component's own workers: a handler that waits for the end of a step would let them live on."""
    source = (
        "import signal, time\n"
        "from nlpkernel.engine.signals import Signals\n"
        "reads, writes = os.pipe()\n"
        "with Signals() as signals:\n"
        "    signals.armed = True\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        os.write(writes, b'.')\n"
        "        time.sleep(20)\n"
        "        os._exit(1)\n"
        # Python forgets signals that come in the middle of a fork.
        "    os.read(reads, 1)\n"
        "    os.kill(pid, signal.SIGTERM)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM\n"
        "    assert signals.received is None\n"
    )
    assert bench.fork(source) == (0, "")


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
