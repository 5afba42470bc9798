"""Workers that run several plans, one after the other: imports are paid for once.

    python crew.py RANK WORLD

Each line on standard input is a JSON object: plan, run (a folder), launch, and resume (a version, "newest" or null). It
is answered by one with "status", or with "error".
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

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


def _run(rank: int, world: int, asked: dict[str, str]) -> dict[str, str]:
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
    for line in sys.stdin:
        answers.write(json.dumps(_run(int(sys.argv[1]), int(sys.argv[2]), json.loads(line))) + "\n")
        answers.flush()
