"""A supervisor and light servers: processes that are no workers, and are started again while the workers go on."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from nlpkernel.supervise.heartbeat import Limits, Watch
from nlpkernel.supervise.restarts import Restarts

#: A beat comes each second, so what a process does is known late.
WHERE = r"while (serving|opening the run)"
KILLED = rf"was killed by SIGKILL {WHERE} \(by somebody, or by the system for want of memory\)"


def test_a_server_knows_its_name_and_has_no_rank(supervise):
    run = supervise(world=2, servers=2, steps=10)
    told = [run.server(number) for number in range(2)]
    assert [(each["name"], each["rank"], each["world"]) for each in told] == [
        ("server-0", -1, 2),
        ("server-1", -1, 2),
    ]
    assert run.end()[0] == 0
    run.gone()


def test_servers_close_what_they_hold_once_the_workers_are_done(supervise):
    run = supervise(servers=2, steps=100)
    for number in range(2):
        run.server(number)
    code, output = run.end()
    assert (code, output) == (0, "missing 0\n")
    assert {path.name for path in run.folder.glob("*.closed")} == {"server-0.closed", "server-1.closed"}
    assert "processes that were left" not in run.log
    run.gone()


def test_a_server_that_does_not_end_is_ended(supervise):
    run = supervise(servers=1, steps=50, serve="stubborn")
    run.server()
    assert run.end()[0] == 0
    assert "1 processes that were left have been ended" in run.log
    run.gone()


def test_a_server_that_is_killed_is_started_again_and_the_workers_go_on(supervise):
    run = supervise(world=2, servers=2, steps=10_000, restarts=3)
    first = run.server(1)
    before = [run.worker(rank) for rank in range(2)]
    run.begun()
    os.kill(first["pid"], signal.SIGKILL)
    again = run.server(1, starts=2)
    reason = again["restart"].pop("reason")
    assert re.fullmatch(f"server-1 {KILLED}", reason)
    assert again["restart"] == {"number": 1, "since": 0, "alone": True}
    step = run.begun()
    run.begun(step=step + 5)
    run.process.send_signal(signal.SIGTERM)
    code, output = run.end()
    assert code == 143
    assert f"{reason}; restart 1 of 3 of server-1 alone in 0.05 s" in output
    assert [run.worker(rank) for rank in range(2)] == before
    assert run.log.count("started as process") == 5
    assert not (run.folder / "server-0.told").read_text().count("\n") > 1
    run.gone()


@pytest.mark.parametrize("restarts", [0, 1])
def test_without_a_budget_the_loss_of_a_server_is_the_loss_of_the_run(supervise, restarts):
    run = supervise(servers=1, restarts=restarts)
    for starts in range(1, restarts + 2):
        os.kill(run.server(starts=starts)["pid"], signal.SIGKILL)
    code, output = run.end()
    assert code == 1
    used = "; 1 restarts are used up" if restarts else ""
    assert re.search(f"NK601 server-0 {KILLED}{used}", output), output
    assert run.log.count("started as process") == 2 + restarts
    run.gone()


def test_a_server_that_is_not_alone_is_lost_with_all(supervise):
    run = supervise(servers=1, restarts=1, alone=False, steps=300)
    before = run.worker()
    os.kill(run.server()["pid"], signal.SIGKILL)
    again = run.server(starts=2)
    assert again["restart"]["alone"] is False
    assert run.end()[0] == 0
    assert run.worker() != before


def test_a_whole_restart_comes_before_that_of_a_server_which_is_waited_for(supervise, wait_for):
    """And both take from one budget."""
    run = supervise(world=2, servers=1, restarts=2, first=3.0, steps=400)
    os.kill(run.server()["pid"], signal.SIGKILL)
    wait_for(lambda: "of server-0 alone in 3 s" in run.log, "the loss of the server")
    os.kill(run.worker(1), signal.SIGKILL)
    code, output = run.end(60.0)
    assert code == 0
    assert re.search(r"worker-1 was killed by SIGKILL .*; restart 2 of 2 in [36] s", output)
    assert run.server(starts=2)["restart"]["alone"] is False
    assert run.log.count("started as process") == 6
    run.gone()


def test_workers_that_stop_get_their_server_back(supervise, wait_for):
    run = supervise(world=2, servers=1, restarts=1, pace=1.0)
    for rank in range(2):
        run.begun(rank)
    first = run.server()
    run.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "every process finishes its step" in run.log, "the stop")
    os.kill(first["pid"], signal.SIGKILL)
    assert run.server(starts=2)["restart"]["alone"] is True
    assert run.end()[0] == 143
    assert run.stopped(0) == run.stopped(1)
    run.gone()


def test_a_run_that_stops_does_not_wait_long_for_a_server(supervise, wait_for):
    run = supervise(world=2, servers=1, restarts=1, first=60.0, pace=2.0)
    for rank in range(2):
        run.begun(rank)
    os.kill(run.server()["pid"], signal.SIGKILL)
    wait_for(lambda: "alone in 60 s" in run.log, "the loss of the server")
    run.process.send_signal(signal.SIGTERM)
    assert run.server(starts=2)["restart"]["alone"] is True
    assert run.end()[0] == 143
    assert run.stopped(0) == run.stopped(1)
    run.gone()


def test_a_run_whose_workers_need_no_server_ends_while_one_is_waited_for(supervise, wait_for):
    run = supervise(world=2, servers=1, restarts=1, first=60.0, wait=str(supervise.folder / "go"), steps=50)
    os.kill(run.server()["pid"], signal.SIGKILL)
    wait_for(lambda: "alone in 60 s" in run.log, "the loss of the server")
    (run.folder / "go").touch()
    assert run.end()[0] == 0
    assert run.log.count("started as process") == 3
    run.gone()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1], ids=lambda each: each.name
)
def test_a_signal_to_a_server_ends_the_run_and_the_server_after_the_workers(supervise, number):
    run = supervise(world=2, servers=1)
    for rank in range(2):
        run.begun(rank)
    os.kill(run.server()["pid"], number)
    assert run.end()[0] == 128 + number
    assert run.stopped(0) == run.stopped(1)
    assert f"server-0 got {number.name}: every process finishes its step, saves and ends" in run.log
    assert (run.folder / "server-0.closed").exists()
    run.gone()


def test_a_signal_to_the_whole_job_ends_the_servers_after_the_workers(supervise):
    run = supervise(world=2, servers=1, pace=0.2)
    for rank in range(2):
        run.begun(rank)
    for pid in (run.server()["pid"], run.process.pid, run.worker(0), run.worker(1)):
        os.kill(pid, signal.SIGTERM)
    assert run.end()[0] == 143
    assert run.stopped(0) == run.stopped(1)
    assert (run.folder / "server-0.closed").exists()


def test_a_second_signal_leaves_at_once_with_the_servers(supervise):
    run = supervise(world=2, servers=1, pace=60.0, serve="stubborn")
    for rank in range(2):
        run.begun(rank)
    run.server()
    run.process.send_signal(signal.SIGTERM)
    run.process.send_signal(signal.SIGINT)
    assert run.end(5.0)[0] in (130, 143)
    run.gone(1.0)


def test_a_server_that_is_silent_is_started_again_alone(supervise):
    run = supervise(servers=1, serve="silent", stall=60.0, silence=3.0, restarts=1)
    run.server()
    before = run.worker()
    reason = run.server(starts=2)["restart"]["reason"]
    assert re.match(f"server-0 is silent {WHERE}: no beat for [3-9] s", reason)
    assert run.worker() == before
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143
    run.gone()


def test_a_mistake_that_a_server_finds_is_never_mended_by_a_restart(supervise):
    run = supervise(servers=1, serve="refuse", restarts=3)
    assert run.end()[0] == 2
    assert run.log.count("started as process") == 2
    run.gone()


def test_the_death_of_a_server_after_the_workers_are_done_is_no_failure(supervise, wait_for):
    """Also where the supervisor sees both at once."""
    run = supervise(servers=1, serve="fall", steps=100)
    server, worker = run.server()["pid"], run.worker()
    os.kill(run.process.pid, signal.SIGSTOP)

    def ended(pid: int) -> bool:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    wait_for(lambda: ended(worker), "the end of the worker")
    (run.folder / "fall").touch()
    wait_for(lambda: ended(server), "the end of the server")
    os.kill(run.process.pid, signal.SIGCONT)
    assert run.end()[0] == 0
    run.gone()


def test_a_server_may_end_before_the_workers(supervise):
    run = supervise(servers=1, serve="early", steps=100, restarts=1)
    assert run.end()[0] == 0
    assert run.log.count("started as process") == 2


def test_kill_9_of_the_supervisor_ends_the_servers_too(supervise):
    run = supervise(world=2, servers=2, serve="stubborn")
    for number in range(2):
        run.server(number)
    run.process.kill()
    run.gone()


def test_what_serves_has_no_limit_of_time_and_what_opens_has():
    limits = Limits(stall=1.0, silence=None, least=2.0)
    watch = Watch(limits, 0.0)
    watch.beat("serving", 0, 1, 0.0)
    assert watch.look(1_000.0) is None
    assert watch.where == "while serving"
    watch.beat("serving", 7, 1, 1_000.0)
    assert watch.where == "while serving step 7"
    assert limits.still("opening") == 6.0


def test_a_budget_says_what_is_left_of_it():
    restarts = Restarts(2)
    left = [restarts.left]
    while restarts.failed(3) is not None:
        left.append(restarts.left)
    assert left == [2, 1, 0]
