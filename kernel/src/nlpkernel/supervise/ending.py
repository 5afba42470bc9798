"""Ending every process of a run, and the guard that does so when the supervisor itself is gone.

A process belongs to a run when it is in the process group of one of the run's processes, or, where /proc tells,
when its environment carries the run's mark: so a child that left the group is found too. This file imports the
standard library only: the guard runs it as a script, without site-packages, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator

#: The variable whose value marks the processes of one start of a run.
MARK = "NLPKERNEL_LAUNCH"
#: Seconds that processes get between SIGTERM and SIGKILL. Enough for a resource tracker to unlink shared memory.
GRACE = 1.0
_PROC = "/proc"
_LISTS = os.path.isdir(f"{_PROC}/self/task")


def end(
    groups: Collection[int],
    mark: str | None,
    *,
    grace: float = GRACE,
    hurry: Callable[[], bool] = lambda: False,
) -> int:
    """End what belongs to a run (`mark` None: to the groups alone): SIGTERM, up to `grace` seconds (none once `hurry`
    says so), SIGKILL. This process itself is spared. Returns how many there were, or how many groups where processes
    cannot be listed."""
    number = _send(signal.SIGTERM, groups, mark)
    if not number:
        return 0
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and not hurry():
        time.sleep(0.02)
        if not _send(0, groups, mark):
            return number
    # One that is stopped gets SIGKILL too; one that just forked may have left a child behind the first round.
    for _ in range(50):
        if not _send(signal.SIGKILL, groups, mark):
            break
        time.sleep(0.02)
    return number


def _send(number: int, groups: Collection[int], mark: str | None) -> int:
    """Send a signal (0: none) to all that belong; returns how many there are."""
    if not _LISTS:
        return sum(_to_group(number, group) for group in groups)
    found = 0
    for pid in _belonging(groups, mark):
        try:
            handle = os.pidfd_open(pid)
        except (OSError, AttributeError):  # Gone, or a kernel without such handles.
            found += _alone(number, pid)
            continue
        try:
            # With the handle open the number cannot have passed on to another process, so this look is the one
            # that counts.
            if _belongs(pid, groups, mark):
                found += 1
                if number:
                    signal.pidfd_send_signal(handle, number)
        except OSError:
            pass  # It ended by itself, which is what is wanted.
        finally:
            os.close(handle)
    return found


def _alone(number: int, pid: int) -> int:
    try:
        os.kill(pid, number)
    except OSError:
        return 0
    return 1


def _to_group(number: int, group: int) -> int:
    try:
        os.killpg(group, number)
    except OSError:
        return 0
    return 1


def _belonging(groups: Collection[int], mark: str | None) -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir(_PROC):
        if name.isdigit() and int(name) != own and _belongs(int(name), groups, mark):
            yield int(name)


def _belongs(pid: int, groups: Collection[int], mark: str | None) -> bool:
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            state, _, group, *_ = file.read().rpartition(b")")[2].split()
        if state in (b"Z", b"X"):
            return False
        if int(group) in groups:
            return True
        if mark is None:
            return False
        with open(f"{_PROC}/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except (OSError, ValueError):
        return False  # It is gone, or another user's.


def guard(mark: str, lines: Iterator[str]) -> None:
    """Read `+GROUP` and `-GROUP`, a line each, until the other end closes, however that comes; then end everything
    that belongs to the run and is still there."""
    groups: set[int] = set()
    for line in lines:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    end(groups, mark)


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)
    guard(sys.argv[1], iter(sys.stdin))
