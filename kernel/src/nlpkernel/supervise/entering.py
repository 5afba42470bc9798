"""The first program of every supervised process: it ties its life to its parent's, then becomes the command.

Run as a script, without site-packages: `python -I -S entering.py PARENT COMMAND...`. On Linux the kernel sends SIGKILL
when the parent is gone (prctl(2), PR_SET_PDEATHSIG), which outlasts the exec. A parent that was gone before that is
seen by its number.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def enter(parent: int, command: list[str]) -> None:
    """Become `command`; does not return."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]!r} cannot be started: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    enter(int(sys.argv[1]), sys.argv[2:])
