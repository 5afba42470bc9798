"""What happens to workers that another launcher started, and what the others say of it."""

from __future__ import annotations

import re
import signal
import sys
import time

import pytest

from .launching import EVERYTHING, NLPKERNEL, Job, listening, marked, there, until, use

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

#: A run that does not end by itself, with versions.
_LONG = {"train": {"seed": 3, "steps": 100_000}, "checkpoint": {"use": "store", "every": 10}}


def test_workers_with_the_variables_of_a_launcher_train_as_those_of_the_supervisor(job: Job) -> None:
    """And none of them listens on more than the loopback interface."""
    sections = {"train": {"seed": 3, "steps": 12, "evaluate": {"every": 5}}, "checkpoint": {"use": "store"}}
    job.plan(**sections, monitor=[use("Pace", gate=3)])
    joined = job.both()
    job.reached(3)
    found = [listening(worker.pid) for worker in joined]
    (job.run / "go").touch()
    for worker in joined:
        worker.end()
    other = Job(job.folder / "other")
    other.folder.mkdir()
    other.plan(**sections, monitor=[use("Pace", gate=3)])
    supervised = other.cold([*NLPKERNEL, "run", "plan.json", "-q"])
    other.reached(3)
    found += [each for pid in marked(other.folder) if (each := listening(pid))]
    (other.run / "go").touch()
    supervised.end()
    # Gloo listens in every worker.
    assert found == [{"127.0.0.1"}] * 4
    told = [[each.events(name) for name in ("Logged", "Evaluated")] for each in (job, other)]
    assert len(told[0][0]) == 12
    for ours, theirs in zip(*told, strict=True):
        for left, right in zip(ours, theirs, strict=True):
            assert {key: left.get(key) for key in _KEYS} == {key: right.get(key) for key in _KEYS}


#: What two runs that compute the same tell alike.
_KEYS = ("losses", "metrics", "progress")


@pytest.mark.parametrize("rank", [0, 1])
def test_case_p3_sigterm_to_one_worker_ends_all_after_the_same_step_saved(job: Job, rank: int) -> None:
    job.plan(**_LONG, monitor=[use("Pace", seconds=0.01)])
    workers = job.both()
    job.reached(5)
    workers[rank].signal(signal.SIGTERM)
    for worker in workers:
        worker.end(143)
    assert job.step(0) == job.step(1) == job.events("VersionSaved")[-1]["progress"]["step"]
    # The same words go on from there.
    before = job.step(0)
    again = job.both("run", "plan.json", "-q", "--continue")
    job.reached(before + 3)
    assert job.events("RunStarted")[-1]["start"]["step"] == before
    again[1].signal(signal.SIGUSR1)
    for worker in again:
        worker.end(138)
    assert job.step(0) == job.step(1)


def test_an_exception_of_one_worker_is_told_by_the_others_with_its_traceback(job: Job) -> None:
    job.plan(**_LONG, monitor=[use("Pace"), use("Trouble", what="raise", step=7)])
    first, second = job.both()
    begun = until(lambda: (job.run / "raise").exists() and time.monotonic(), "the exception")
    told = first.end(1)
    assert time.monotonic() - begun < 1.5
    assert "TDI023 worker 1 failed in step 7: " in told
    assert "ValueError: the milk is sour" in told
    assert re.search(r'File ".*/parts/joining\.py", line \d+, in decide', told)
    own = second.end(1)
    assert "the milk is sour" in own
    assert "TDI023" not in own
    assert "TDI023 worker 1 failed" in (job.run / "logs/rank-0.log").read_text()


@pytest.mark.parametrize("rank", [0, 1])
def test_case_d9_a_killed_worker_is_named_by_the_others_and_its_children_go(job: Job, rank: int) -> None:
    job.plan(**_LONG, monitor=[use("Pace", child=True)])
    workers = job.both()
    job.reached(5)
    assert len(job.children()) == 2
    killed = time.monotonic()
    workers[rank].signal(signal.SIGKILL)
    told = workers[1 - rank].end(1, seconds=3.0)
    assert re.search(
        rf"TDI022 worker {rank} was lost (in step|while|in a save) .*it ended without a word", told
    ), told
    until(lambda: not job.children(), "the end of the children", 3.0 - (time.monotonic() - killed))


@pytest.mark.parametrize(
    ("rank", "limit"),
    [(1, 4), pytest.param(0, 10, marks=pytest.mark.skipif(not EVERYTHING, reason="waits for 10 s"))],
)
def test_a_stopped_worker_is_named_by_the_other(job: Job, rank: int, limit: int) -> None:
    """The first worker sees it as soon as the run does not get on; of itself the others see that its beats are gone."""
    job.plan(
        train={"seed": 3, "steps": 100_000, "stall": "3s"},
        checkpoint={"use": "store", "every": 1000},
        monitor=[use("Pace")],
    )
    workers = job.both()
    job.reached(5)
    workers[rank].signal(signal.SIGSTOP)
    told = workers[1 - rank].end(1, seconds=limit + 3.0)
    assert re.search(
        rf"TDI024 worker {rank} is silent (in step \d+|while opening the run): no beat for \d+ s", told
    ), told
    if rank == 1:
        assert "it is stopped (SIGSTOP or a debugger)" in told
        # It could not end by itself.
        until(lambda: not there(workers[1].pid) or not workers[1].running, "its end", 3.0)
    else:
        workers[0].signal(signal.SIGCONT)
        workers[0].end(1, seconds=10.0)


def test_a_stuck_worker_is_named_with_its_place_and_not_those_that_wait_for_it(job: Job) -> None:
    job.plan(
        train={"seed": 3, "steps": 100_000, "stall": "3s"},
        checkpoint={"use": "store", "every": 1000},
        monitor=[use("Pace"), use("Trouble", what="hang", step=6)],
    )
    for worker in job.both():
        told = worker.end(1, seconds=30.0)
        assert re.search(
            r"TDI025 worker 1 is stuck in step 6: it has not got on for \d s; it is at \S+joining\.py:\d+ in "
            r"gradients_ready; the others wait for it",
            told,
        ), told
    stack = (job.run / "logs/rank-1.stack").read_text()
    assert "in gradients_ready" in stack


def test_two_runs_at_once_do_not_disturb_each_other(job: Job) -> None:
    """No store, council or port is the machine's: one run fails, and the other ends as if it were alone."""
    sections = {"train": {"seed": 3, "steps": 20}, "checkpoint": {"use": "store", "every": 5}}
    jobs = [Job(job.folder / name) for name in ("alone", "beside", "failing")]
    try:
        for each in jobs:
            each.folder.mkdir()
        alone, beside, failing = jobs
        for each in (alone, beside):
            each.plan(**sections, monitor=[use("Pace", seconds=0.01)])
        failing.plan(**_LONG, monitor=[use("Pace"), use("Trouble", what="raise", step=6)])
        for worker in alone.both():
            worker.end()
        workers = [*beside.both(), *failing.both()]
        for worker, code in zip(workers, (0, 0, 1, 1), strict=True):
            worker.end(code)
        told = [[line["losses"] for line in each.events("Logged")] for each in (alone, beside)]
        assert told[0] == told[1] != []
    finally:
        for each in jobs:
            each.close()


def test_two_runs_on_one_port_say_so_and_may_be_tried_again(job: Job) -> None:
    """The first goes on; the exit code of the other is not that of a mistake of the plan."""
    other = Job(job.folder / "other")
    other.folder.mkdir()
    other.port = job.port
    try:
        for each in (job, other):
            each.plan(**_LONG, monitor=[use("Pace", seconds=0.01)])
        workers = job.both()
        job.reached(2)
        assert f"TDI003 the first worker cannot listen on 127.0.0.1, port {job.port}: Addr" in other.start(
            0
        ).end(1)
        done = job.step(1)
        job.reached(done + 2)
        workers[0].signal(signal.SIGTERM)
        for worker in workers:
            worker.end(143)
    finally:
        other.close()


def test_a_worker_that_cannot_begin_ends_all_with_its_reason(job: Job) -> None:
    """The first one refuses a folder that exists; the others, which wait for it, say why."""
    job.plan(train={"seed": 3, "steps": 3}, checkpoint={"use": "store"})
    for worker in job.both():
        worker.end()
    first, second = job.both()
    assert "NK301" in first.end(2)
    told = second.end(2)
    assert "TDI023 worker 0 failed while opening the run: NK301 the run folder" in told


def test_a_second_worker_of_the_same_number_does_not_disturb_the_first(job: Job) -> None:
    job.plan(**_LONG, communicator={"timeout": 2.0}, monitor=[use("Pace", seconds=0.01)])
    workers = job.both()
    job.reached(2)
    told = job.start(1).end(1)
    assert f"worker 1 of this start has come already as process {workers[1].pid} on " in told
    before = job.step(1)
    job.reached(before + 2)
    workers[1].signal(signal.SIGTERM)
    for worker in workers:
        worker.end(143)


@pytest.mark.parametrize("said", [False, True])
def test_only_who_can_read_the_folder_of_runs_joins(job: Job, said: bool) -> None:
    """Or who was told the word. It is gone when the run is over."""
    job.plan(**_LONG, communicator={"timeout": 2.0}, monitor=[use("Pace", seconds=0.01)])
    secret = job.folder / "runs/.tiny.secret"
    variables = {"NLPKERNEL_SECRET": "a word"} if said else {}
    first = job.start(0, environment=variables)
    if not said:
        until(secret.exists, "the word")
        assert secret.stat().st_mode & 0o777 == 0o600
    stranger = job.start(1, environment={"NLPKERNEL_SECRET": "another"})
    second = job.start(1, environment=variables)
    job.reached(2)
    assert "this is the council of another start" in stranger.end(1)
    first.signal(signal.SIGTERM)
    for worker in (first, second):
        worker.end(143)
    assert not secret.exists()


def test_a_worker_that_shares_no_folder_says_so(job: Job) -> None:
    job.plan(communicator={"timeout": 2.0})
    first = job.start(0)
    told = job.start(1, "run", "plan.json", "-q", "--runs", "elsewhere").end(1)
    assert re.search(
        r"TDI003 worker 1 did not meet worker 0 .*elsewhere/\.tiny\.secret cannot be read here", told
    )
    assert "TDI003 worker 1 did not come" in first.end(1)


def test_workers_that_do_not_come_are_named(job: Job) -> None:
    job.plan(communicator={"workers": 3, "timeout": 1.0})
    for worker in (job.start(0, world=3), job.start(2, world=3)):
        assert "TDI003 worker 1 did not come within 1 s" in worker.end(1)
    assert not job.run.exists()


def test_workers_that_are_told_different_numbers_say_so(job: Job) -> None:
    job.plan()
    first, other = job.start(0, world=2), job.start(1, world=3)
    for worker in (first, other):
        told = worker.end(2)
        assert "TDI020 worker 1 is told that there are 3 workers, and worker 0 that there are 2" in told


def test_a_start_that_is_repeated_while_the_last_one_ends_waits_for_its_own(job: Job) -> None:
    """As the pods of a Job are: each is started again by itself, as soon as it ends."""
    job.plan(**_LONG, monitor=[use("Pace", seconds=0.01)])
    words = ("run", "plan.json", "-q", "--continue")
    first, second = job.both(*words)
    until(lambda: job.events("VersionSaved"), "a version")
    second.signal(signal.SIGKILL)
    again = job.start(1, *words)
    first.end(1)
    other = job.start(0, *words)
    until(lambda: len(job.events("RunStarted")) == 2, "the second start")
    assert job.events("RunStarted")[-1]["start"]["step"] >= 10
    done = job.step(1)
    until(lambda: job.step(1) != done, "more steps")
    other.signal(signal.SIGTERM)
    for worker in (other, again):
        worker.end(143)
