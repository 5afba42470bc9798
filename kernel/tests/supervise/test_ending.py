"""Case P4: no process of a run is left after 5 s, however the supervisor ends, and no shared memory."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nlpkernel.supervise import ending


def memory(pid: int) -> Path:
    return Path(f"/dev/shm/nlpk-test-{pid}")


def with_children(supervise, wait_for, **more):
    """A run whose worker has started children: in its group, in a session of its own, deaf to SIGTERM; and memory."""
    run = supervise(at={"2": "children"}, **more)
    run.begun(step=3)
    wait_for(lambda: sum("time.sleep(600)" in line for line in run.left()) == 3, "the children")
    assert memory(run.worker()).exists()
    return run


def guard_of(run) -> int:
    (guard,) = [int(line.split()[0]) for line in run.left() if "ending.py" in line]
    return guard


def without_guard(run) -> None:
    """Kill the supervisor so that it cannot start another guard in place of the one that is killed with it."""
    guard = guard_of(run)
    os.kill(run.process.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    run.process.kill()


def nothing_left(run, worker: int) -> None:
    run.gone(5.0)
    assert not memory(worker).exists()


def test_case_p4_kill_9_of_the_supervisor(supervise, wait_for):
    run = with_children(supervise, wait_for)
    worker = run.worker()
    run.process.kill()
    nothing_left(run, worker)


def test_case_p4_kill_9_of_the_supervisor_while_a_worker_keeps_the_interpreter_to_itself(supervise, wait_for):
    run = supervise(at={"2": "hold"})
    run.begun(step=2)
    run.process.kill()
    run.gone(5.0)


def test_case_p4_kill_9_of_the_supervisor_while_a_worker_is_stopped(supervise, wait_for):
    run = with_children(supervise, wait_for)
    worker = run.worker()
    os.kill(worker, signal.SIGSTOP)
    run.process.kill()
    nothing_left(run, worker)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel says nothing of a parent's death elsewhere")
def test_case_p4_kill_9_of_supervisor_and_guard_while_a_worker_keeps_the_interpreter_to_itself(supervise):
    """The kernel's word alone ends it."""
    run = supervise(at={"2": "hold"})
    run.begun(step=2)
    without_guard(run)
    run.gone(5.0)


def test_a_process_whose_parent_was_gone_before_it_could_hear_of_that_does_not_begin(tmp_path):
    entering = Path(ending.__file__).with_name("entering.py")
    command = ["touch", str(tmp_path / "begun")]
    for parent, code in ((os.getpid(), 0), (1, 1)):
        done = subprocess.run([sys.executable, "-I", "-S", str(entering), str(parent), *command])
        assert done.returncode == code
        assert (tmp_path / "begun").exists() == (code == 0)
        (tmp_path / "begun").unlink(missing_ok=True)


def test_case_p4_the_end_of_the_channel_alone_ends_a_worker_and_its_children(supervise, wait_for):
    """As where the kernel sends no signal for a parent's death."""
    run = with_children(supervise, wait_for, deaf=True)
    worker = run.worker()
    without_guard(run)
    nothing_left(run, worker)


def test_case_p4_a_guard_that_is_killed_is_replaced(supervise, wait_for):
    run = with_children(supervise, wait_for)
    worker = run.worker()
    os.kill(guard_of(run), signal.SIGKILL)
    wait_for(lambda: "the guard was killed" in run.log, "another guard")
    run.process.kill()
    nothing_left(run, worker)


@pytest.mark.parametrize("how", ["die", "end"])
def test_case_p4_whatever_a_worker_s_end_its_children_end_with_it(supervise, wait_for, how):
    at = {"2": "children", "30": how}
    run = supervise(at=at, steps=30)
    worker = run.worker()
    run.end()
    nothing_left(run, worker)
    assert "worker-0 left" in run.log


def test_case_p4_an_exception_in_the_supervisor_itself(supervise, wait_for):
    run = with_children(supervise, wait_for, explode=True)
    worker = run.worker()
    (run.folder / "explode").touch()
    code, output = run.end()
    assert "RuntimeError: exploded" in output
    assert code == 1
    assert run.left() == []
    assert not memory(worker).exists()


@pytest.mark.parametrize("how", ["ctrl-c", "kill -9 of the shell"])
def test_case_p4_on_a_terminal(supervise, wait_for, how):
    """Ctrl-C goes to the terminal's foreground; a shell that dies takes its terminal along."""
    main, other = pty.openpty()
    try:
        options = {"stdin": other, "stdout": other, "stderr": other, "start_new_session": True}
        run = with_children(supervise, wait_for, prefix=(sys.executable, "-S", "-c", SHELL), options=options)
        worker = run.worker()
        if how == "ctrl-c":
            os.write(main, b"\x03")
            assert run.process.wait(10) == 130
            assert run.stopped() >= 3
        else:
            run.process.kill()
        nothing_left(run, worker)
    finally:
        os.close(main)
        os.close(other)


#: A shell: the leader of a session with a terminal, and a command in its foreground.
SHELL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_stranger_in_no_group_and_without_the_mark_is_spared():
    stranger = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        assert ending.end([], "a mark that nobody has") == 0
        assert ending.end([], None) == 0
        assert stranger.poll() is None
        assert ending.end([stranger.pid], None) == 0, "it leads no group"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
