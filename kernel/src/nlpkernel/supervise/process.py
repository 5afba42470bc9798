"""One supervised process, and the guard that outlives the supervisor: started, watched, ended, reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nlpkernel.supervise import ending
from nlpkernel.supervise.channel import CHANNEL

_HERE = Path(__file__).parent
#: A Python that starts in milliseconds, for our own two scripts.
_PYTHON = (sys.executable, "-I", "-S")


class Child:
    """A process in a session and process group of its own, with a channel to it.

    `channel` is this side's socket; the other side's number is in the child's environment. Nothing is read from the
    terminal: the child is not in its foreground, where Ctrl-C goes, but it may write to it.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it. The thread that does so has to live as long as the child: Linux counts it as the parent."""
        self.name = name
        self.channel, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [*_PYTHON, str(_HERE / "entering.py"), str(os.getpid()), *command],
                env={**os.environ, **environment, CHANNEL: str(number)},
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
                start_new_session=True,
            )
        self.pid = self._process.pid
        #: A descriptor that becomes readable when it ends; None where the system has none.
        self.end: int | None = None
        with contextlib.suppress(OSError, AttributeError):
            self.end = os.pidfd_open(self.pid)

    @property
    def code(self) -> int | None:
        """Its exit code, negative where a signal killed it; None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Send it, and it alone, a signal."""
        self._process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """Send it and all its children a signal."""
        if self._process.poll() is None:
            os.killpg(self.pid, number)

    def stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP, a debugger), where the system tells."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state in ("T", "t")

    def kill(self) -> int:
        """End it at once, and return its exit code."""
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        """Close what this side holds open."""
        self.channel.close()
        if self.end is not None:
            os.close(self.end)
            self.end = None


class Guard:
    """A small process that ends what is left of a run when this one is gone, however that came."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._groups: list[int] = []
        self._process = self._start()

    def add(self, group: int) -> None:
        """A process group belongs to the run from now on."""
        self._groups.append(group)
        self._tell(f"+{group}\n")

    def drop(self, group: int) -> None:
        """A process group is no more."""
        self._groups.remove(group)
        self._tell(f"-{group}\n")

    def renew(self) -> bool:
        """Start it again if it was killed; tells whether it was."""
        if self._process.poll() is None:
            return False
        self._close()
        self._process = self._start()
        return True

    def close(self) -> None:
        """Let it end what is still there, and wait for it."""
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It was killed.
            self._process.stdin.close()
        self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*_PYTHON, str(_HERE / "ending.py"), self._mark],
            # Without the mark, or it would end itself.
            env={name: value for name, value in os.environ.items() if name != ending.MARK},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        self._process = process
        for group in self._groups:
            self._tell(f"+{group}\n")
        return process

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()  # `renew` starts another, which is told of all.


def name_of(number: int) -> str:
    """A signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
