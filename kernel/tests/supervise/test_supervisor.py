"""A supervisor and light processes: what becomes of each way in which one can end, hang, or be asked to stop."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest


def test_a_run_that_ends_well_ends_well_and_its_log_is_in_order(supervise):
    run = supervise(world=2, steps=20)
    code, output = run.end()
    assert (code, output) == (0, "missing 0\n")
    lines = run.log.splitlines()
    times = [line.split()[0] for line in lines]
    assert times == sorted(times)
    for who in ("supervisor", "worker-0", "worker-1"):
        numbers = [int(line.split()[2][1:]) for line in lines if line.split()[1] == who]
        assert numbers == sorted(set(numbers))
        assert numbers
    assert [line.split()[3] for line in lines if line.split()[1] == "worker-1"] == ["RunStarted"]
    assert lines[-1].endswith("supervisor #4 finished")
    run.gone()


@pytest.mark.parametrize(("what", "expected"), [("refuse", 2), ("fail", 7), ("die", 1)])
def test_without_a_budget_the_exit_code_is_the_process_s_own(supervise, what, expected):
    run = supervise(world=2, at={"3": what}, only=1)
    code, output = run.end()
    assert code == expected
    if what == "fail":
        assert "NK601 worker-1 ended with exit code 7 in step 3" in output
    elif what == "die":
        assert "NK601 worker-1 was killed by SIGKILL in step 1 (by somebody, or by the system" in output
    run.gone()


def test_a_run_that_fails_is_started_again_as_often_as_the_budget_says_and_then_given_up(supervise):
    run = supervise(at={"3": "fail"}, restarts=2)
    code, output = run.end()
    assert code == 7
    assert re.findall(r"restart \d of \d in [\d.]+ s", output) == [
        "restart 1 of 2 in 0.05 s",
        "restart 2 of 2 in 0.1 s",
    ]
    assert (
        "NK601 worker-0 ended with exit code 7 in step 3; 2 restarts are used up, and the last 3 failures in a row "
        "came in the same step" in output
    )
    assert run.log.count("started as process") == 3


def test_a_mistake_of_configuration_is_never_started_again(supervise):
    run = supervise(at={"3": "refuse"}, restarts=2)
    assert run.end()[0] == 2
    assert run.log.count("started as process") == 1


def test_one_that_is_lost_ends_the_others_and_all_are_started_again(supervise):
    run = supervise(world=3, steps=60, at={"3": "die"}, only=1, once=True, restarts=1)
    code, output = run.end()
    assert (code, run.log.count("started as process")) == (0, 6)
    reason = "worker-1 was killed by SIGKILL in step 1 (by somebody, or by the system for want of memory)"
    assert f"{reason}; restart 1 of 1 in 0.05 s" in output
    for rank in range(3):
        told = json.loads((run.folder / f"restart-{rank}").read_text())
        assert told == {"number": 1, "since": 1, "reason": reason, "alone": False}


def test_restarts_before_the_newest_version_are_in_its_counts_and_not_told_again(supervise):
    """A version that is saved knows of the restarts before it, so a process is told of those since."""
    run = supervise(
        steps=12, resumes=True, at={"3": "fail", "5": "save", "7": "fail", "9": "fail"}, restarts=3
    )
    assert run.end()[0] == 0
    assert json.loads((run.folder / "restart-0").read_text())["number"] == 3
    assert json.loads((run.folder / "restart-0").read_text())["since"] == 2


# -- stuck, silent --------------------------------------------------------------------------------------------------


def test_a_thread_that_beats_while_the_loop_is_stuck_is_seen_as_stuck_and_named(supervise):
    run = supervise(at={"4": "sleep"}, once=True, steps=10, stall=2.0, silence=10.0, restarts=1)
    code, output = run.end()
    assert code == 0
    found = re.search(
        r"worker-0 is stuck in step 4: it has not got on for 2 s; it is at (\S+):(\d+) in (\S+);", output
    )
    assert found is not None, output
    assert found[1].endswith("parts/worker.py")
    assert "time.sleep(600)" in Path(found[1]).read_text().splitlines()[int(found[2]) - 1]
    assert "Thread 0x" in (run.folder / "rank-0.stack").read_text()
    run.gone()


def test_a_library_that_keeps_the_interpreter_to_itself_is_seen_and_its_place_named(supervise):
    """No thread of Python can run then: neither the one that beats nor the one that would leave."""
    run = supervise(at={"4": "hold"}, stall=60.0, silence=2.5)
    code, output = run.end()
    assert code == 1
    assert re.search(
        r"NK603 worker-0 is silent in step 1: no beat for [234] s; it is at \S+worker.py:\d+ in", output
    )
    run.gone()


def test_a_process_that_is_stopped_is_seen_as_silent_and_said_to_be_stopped(supervise):
    run = supervise(stall=60.0, silence=2.5)
    run.begun()
    os.kill(run.worker(), signal.SIGSTOP)
    code, output = run.end()
    assert code == 1
    assert "NK603 worker-0 is silent in step" in output
    assert "it is stopped (SIGSTOP or a debugger)" in output
    run.gone()


def test_a_supervisor_that_was_stopped_takes_nobody_for_silent(supervise):
    run = supervise(steps=250, stall=1.5, silence=1.5)
    run.begun()
    os.kill(run.process.pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(run.process.pid, signal.SIGCONT)
    assert run.end()[0] == 0


# -- the bridge never blocks ----------------------------------------------------------------------------------------


def test_a_supervisor_that_does_not_read_blocks_no_step_and_knows_afterwards_what_it_missed(
    supervise, wait_for
):
    run = supervise(steps=30, at={"3": "flood"}, wait=str(supervise.folder / "go"))
    wait_for(lambda: "RunStarted" in run.log, "the start")
    os.kill(run.process.pid, signal.SIGSTOP)
    (run.folder / "go").touch()
    seconds = float(
        wait_for(
            lambda: (run.folder / "flooded").exists() and (run.folder / "flooded").read_text(), "the flood"
        )
    )
    assert seconds < 5.0
    os.kill(run.process.pid, signal.SIGCONT)
    code, output = run.end()
    assert code == 0
    missing = int(output.removeprefix("missing "))
    arrived = run.log.count(" Logged ")
    assert arrived + missing >= 20_000
    assert arrived + missing < 20_050, "a few beats may be among the missing"
    assert missing > 10_000
    assert sum(map(int, re.findall(r"worker-0: (\d+) messages missing", run.log))) == missing


def test_a_process_that_sends_what_is_no_message_is_not_heard_any_more_and_not_ended_for_it(supervise):
    run = supervise(at={"3": "noise"}, steps=10)
    assert run.end()[0] == 0
    assert "worker-0 sent what is no message" in run.log


# -- stopping -------------------------------------------------------------------------------------------------------

NUMBERS = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1], ids=lambda each: each.name
)


@NUMBERS
def test_the_first_signal_ends_all_after_the_same_step(supervise, number):
    run = supervise(world=3, pace=0.001, steps=1_000_000)
    for rank in range(3):
        run.begun(rank)
    run.process.send_signal(number)
    assert run.end()[0] == 128 + number
    assert len({run.stopped(rank) for rank in range(3)}) == 1
    assert f"{number.name}: every process finishes its step, saves and ends" in run.log
    run.gone()


def test_a_signal_to_one_of_several_ends_all_after_the_same_step(supervise):
    run = supervise(world=2, pace=0.001, steps=1_000_000)
    for rank in range(2):
        run.begun(rank)
    os.kill(run.worker(1), signal.SIGTERM)
    assert run.end()[0] == 143
    assert run.stopped(0) == run.stopped(1)
    assert "worker-1 got SIGTERM" in run.log


def test_a_signal_to_the_whole_job_is_one_wish_and_no_second_one(supervise):
    """As batch systems send it: to the supervisor and to each of its processes."""
    run = supervise(world=2, pace=0.002, steps=1_000_000)
    for rank in range(2):
        run.begun(rank)
    for pid in (run.worker(0), run.process.pid, run.worker(1)):
        os.kill(pid, signal.SIGTERM)
    assert run.end()[0] == 143
    assert run.stopped(0) == run.stopped(1)


def test_a_process_alone_ends_after_the_step_that_it_is_in(supervise):
    run = supervise(pace=0.2)
    step = run.begun()
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143
    assert run.stopped() <= step + 1


def test_a_process_alone_that_gets_the_signal_itself_is_not_started_again(supervise):
    run = supervise(restarts=3)
    run.begun()
    os.kill(run.worker(), signal.SIGTERM)
    assert run.end()[0] == 143
    assert run.log.count("started as process") == 1


def test_the_second_signal_leaves_at_once(supervise):
    run = supervise(world=2, pace=60.0)
    for rank in range(2):
        run.begun(rank)
    run.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGINT)
    assert run.end(5.0)[0] == 130
    assert run.left() == []


def test_a_signal_before_the_first_step_ends_what_goes_on(supervise, wait_for):
    run = supervise(world=2, start=60.0)
    wait_for(lambda: len(run.left()) > 3, "the processes")
    run.process.send_signal(signal.SIGINT)
    assert run.end(10.0)[0] == 130
    run.gone()


def test_a_signal_while_a_restart_is_waited_for_ends_the_wait(supervise, wait_for):
    run = supervise(at={"3": "fail"}, restarts=1, first=60.0)
    wait_for(lambda: "restart 1 of 1 in 60 s" in run.log, "the failure")
    run.process.send_signal(signal.SIGTERM)
    assert run.end(5.0)[0] == 143


def test_ctrl_z_stops_all_and_going_on_goes_on_with_all(supervise, wait_for):
    run = supervise(world=2, steps=100)
    run.begun(1)

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    pids = [run.worker(0), run.worker(1), run.process.pid]
    run.process.send_signal(signal.SIGTSTP)
    wait_for(lambda: [state(pid) for pid in pids] == ["T", "T", "T"], "the stop of all")
    run.process.send_signal(signal.SIGCONT)
    assert run.end()[0] == 0


def test_a_server_is_ended_once_the_workers_are_done(supervise):
    run = supervise(world=2, steps=5, server="import time; time.sleep(600)")
    assert run.end(15.0)[0] == 0
    run.gone()


def test_a_server_that_dies_ends_the_run(supervise):
    run = supervise(world=2, server="import time; time.sleep(0.5); raise SystemExit(3)")
    code, output = run.end(15.0)
    assert code == 3
    assert "NK601 server ended with exit code 3" in output


def test_a_command_that_does_not_exist_is_said(supervise):
    run = supervise(command=["/no/such/program"])
    code, output = run.end()
    assert code == 127
    assert "error: '/no/such/program' cannot be started: No such file or directory" in output
