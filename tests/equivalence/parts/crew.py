"""Workers and servers that run several plans, one after the other: imports are paid for once.

    python crew.py RANK WORLD
    python crew.py server-0

The second is a server, which SIGTERM ends, to be ready for the next run. Each line on standard input is a JSON object:
plan, run (a folder), launch, workers, and resume (a version, "newest" or null). It is answered by one with "status", or
with "error".
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from nlpkernel.engine.api import Loop
from nlpkernel.errors import NlpkernelError
from nlpkernel.plan import Plan
from nlpkernel.supervise.post import Post


class _Post(Post):
    """One of several workers that nobody supervises; the folder of the run is there already."""

    supervised = True

    def __init__(self, rank: int, world: int, launch: str) -> None:
        super().__init__()
        self.rank, self.world, self.launch = rank, world, launch


class _ServerPost(_Post):
    """A server; a signal ends it."""

    serves = True

    def __init__(self, name: str, world: int, launch: str) -> None:
        super().__init__(-1, world, launch)
        self.name = name

    def asks(self, number: int) -> None:
        self.dismissed = True
        signal.raise_signal(signal.SIGTERM)


def _serve(name: str, asked: dict[str, Any]) -> dict[str, str]:
    post = _ServerPost(name, asked["workers"], asked["launch"])
    try:
        # The signal may come when it is about to end by itself.
        with suppress(SystemExit):
            for _ in Loop(Plan.load(asked["plan"]), Path(asked["run"]), quiet=True, post=post).steps():
                pass
    except NlpkernelError as error:
        return {"error": str(error)}
    return {"status": "served"}


def _run(rank: int, world: int, asked: dict[str, Any]) -> dict[str, str]:
    post = _Post(rank, world, asked["launch"])
    try:
        loop = Loop(
            Plan.load(asked["plan"]), Path(asked["run"]), resume=asked["resume"], quiet=True, post=post
        )
        for _ in loop.steps():
            pass
    except NlpkernelError as error:
        return {"error": str(error)}
    return {"status": loop.status}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    who, *world = sys.argv[1:]
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _run(int(who), int(world[0]), asked) if world else _serve(who, asked)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
