"""A run is resumed exactly whatever brings its data: a stream that cannot seek, worker processes that are ahead."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest
import torch


def parted(bench, at, **plan):
    """The run unbroken, its beginning, and its rest."""
    ran = []
    for name, script, resume in (
        ("whole", {}, None),
        ("tiny", {"at": {str(at): "STOP"}}, None),
        ("tiny", {}, "newest"),
    ):
        ran.append(bench.run(bench.use("Script", **script), name=name, resume=resume, **plan))
        assert ran[-1].error is None
    return ran


def assert_joined(whole, first, rest) -> None:
    assert first.losses + rest.losses == whole.losses
    assert all(torch.equal(rest.weights[name], whole.weights[name]) for name in whole.weights)


def stream(bench, **more):
    return {
        "data": bench.use("Stream", rows=25),
        "train": {"steps": 12, "batch": 5},
        "model": {"hidden": 4, "dropout": 0.5},
        "checkpoint": bench.use("Shelf"),
        **more,
    }


def test_case_r5_a_resumed_stream_gives_each_row_as_often_as_the_unbroken_one(bench):
    whole, first, rest = parted(bench, 7, **stream(bench))
    assert_joined(whole, first, rest)
    rows = first.books["stream"] + rest.books["stream"]
    assert len(rows) == 12
    counted = Counter(row for (window,) in rows for row in window)
    assert counted == {row: 3 if row < 10 else 2 for row in range(25)}
    assert rest.books["skipped"][-1] == (10,), "it reads less than a pass, and no pass from the beginning"


@pytest.mark.parametrize("at", [1, 4, 5, 6, 10, 11])
def test_case_r5_also_at_and_around_the_end_of_a_pass(bench, at):
    """A pass ends after every fifth step."""
    assert_joined(*parted(bench, at, **stream(bench)))


@pytest.mark.parametrize("workers", [1, 4])
def test_case_d5_worker_processes_give_what_one_process_gives_and_are_resumed_exactly(bench, workers):
    def plan(number):
        return {
            "data": bench.use("Workers", workers=number),
            "train": {"steps": 10, "batch": 8, "micro": 3},
            "model": {"hidden": 4, "dropout": 0.5},
            "checkpoint": bench.use("Shelf"),
        }

    alone = bench.run(bench.use("Script"), name="alone", **plan(0))
    whole, first, rest = parted(bench, 5, **plan(workers))
    assert whole.losses == alone.losses
    assert_joined(whole, first, rest)


def test_case_r8_a_window_that_was_killed_in_its_middle_is_done_again(bench):
    """24 micro-batches in windows of 4; killed at micro-batch 3, 10 and 17."""
    plan = {
        "data": bench.use("Deadly"),
        "train": {"steps": 6, "batch": 8, "micro": 2, "log": {"every": 1}},
        "model": {"hidden": 4, "dropout": 0.5},
        "checkpoint": bench.use("Shelf", every=1),
    }
    whole = bench.run(name="whole", **plan)
    values = json.dumps(bench.values(**plan))
    source = (
        "import json, nlpkernel\n"
        "os.environ['KILLED_AT'] = arguments[1]\n"
        "plan = nlpkernel.Plan.of(json.loads(arguments[0]))\n"
        "kept = os.path.isdir('tiny/shelf') and os.listdir('tiny/shelf')\n"
        "nlpkernel.run(plan, runs_folder='.', resume='newest' if kept else None, overwrite=not kept)\n"
    )
    for at, saved in ((3, []), (10, [1, 2]), (17, [1, 2, 3, 4])):
        code, error = bench.fork(source, values, str(at))
        assert code == -signal.SIGKILL, error
        assert [info.step for info in bench.shelf(bench.folder / "tiny").list()] == saved
    rest = bench.run(resume="newest", **plan)
    assert rest.losses == whole.losses[4:]
    assert all(torch.equal(rest.weights[name], whole.weights[name]) for name in whole.weights)


@pytest.mark.parametrize("every", [1, 4])
def test_a_stream_that_gives_nan_names_it_and_is_resumed_at_that_window(bench, every):
    plan = stream(bench, train={"steps": 12, "batch": 5, "log": {"every": every}})
    plan["data"] = bench.use("Stream", rows=25, poisoned=[12])
    ran = bench.run(**plan)
    assert "NK403" in str(ran.error)
    assert "step 3" in str(ran.error)
    assert (ran.report.progress.step, ran.report.version) == (2, "step-0002")
    skipped = {**plan, "train": {**plan["train"], "on_nan": "skip"}}
    rest = bench.run(resume="newest", **skipped)
    assert rest.error is None
    assert rest.books["stream"][0] == (list(range(10, 15)),), "no row was lost"
    assert rest.report.progress.step == 12
