"""Scripts in processes of their own, without the seconds that each would take to import torch.

One process imports what they need and forks for each of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

_SERVER = """
import json, os, sys
import filelock, torch
import nlpkernel_store.store
from nlpkernel.context import Run
from nlpkernel.plan.train import Train

torch.set_num_threads(1)
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if not pid:
        for name, number in ((os.devnull, 0), (job["out"], 1), (job["err"], 2)):
            opened = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        break
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    sys.exit()
sys.argv = ["-c", *job["arguments"]]
exec(compile(job["code"], "<script>", "exec"), {"__name__": "__main__"})
if not job["whole"]:
    # To take the interpreter down takes longer than most scripts.
    sys.stdout.flush()
    os._exit(0)
"""
#: Seconds for which a script may run.
_PATIENCE = 120.0


class Children:
    """Runs scripts. What they print goes through files of `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[str] | None = None
        self._count = 0

    def __call__(self, code: str, *arguments: object, whole: bool = False) -> tuple[str, str]:
        """What a script has written to its standard output and error. It has to end with exit code 0. whole: it ends as
        any interpreter does, which waits for its threads."""
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._count += 1
        out, err = (self._folder / f"{self._count}.{name}" for name in ("out", "err"))
        job = {
            "code": code,
            "arguments": [str(each) for each in arguments],
            "out": str(out),
            "err": str(err),
            "whole": whole,
        }
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        if not select.select([self._server.stdout], [], [], _PATIENCE)[0]:
            self.close()
            raise AssertionError(f"the script has not ended after {_PATIENCE} s")
        ended = self._server.stdout.readline().strip()
        assert ended == "0", err.read_text()
        return out.read_text(), err.read_text()

    def close(self) -> None:
        """End the process, and what runs in it."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.communicate()
            self._server = None
