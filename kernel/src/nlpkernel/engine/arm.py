"""A short run that writes down what came of it: one arm of `plugins bisect`, in a process of its own.

    python -m nlpkernel.engine.arm '{"plan": ..., "folder": ..., "steps": ...}'

One JSON object on standard output: seconds of each step, and a hash of each part of the state at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from nlpkernel.engine.api import Loop
from nlpkernel.engine.capture import capture
from nlpkernel.engine.equality import uncounted
from nlpkernel.engine.session import Session
from nlpkernel.errors import NlpkernelError
from nlpkernel.plan import Plan

#: What of a state an observer has no business with.
PARTS = ("model", "optimizer", "random")


def main(asked: dict[str, Any]) -> dict[str, Any]:
    """Run so many steps of a plan, or as many as it takes."""
    loop = Loop(Plan.load(asked["plan"]), Path(asked["folder"]), quiet=True, rehearsal=True)
    moments, state = [], {}
    for session in loop.steps():
        moments.append(perf_counter())
        if session.progress.step == asked["steps"]:
            # As a signal would: without the evaluation that ends a run.
            session.stop = session.stop or ("interrupted", "the trial ends here")
        if session.stop is not None or session.progress.step == session.end:
            state = hashes(session)
    seconds = [after - before for before, after in pairwise(moments)]
    return {"seconds": seconds, "state": state, "steps": len(moments)}


def hashes(session: Session) -> dict[str, str]:
    """A hash of each of the parts `PARTS` of the state, what follows the clock left out."""
    found: dict[str, Any] = {}
    for path, leaf in sorted(capture(session).tree.items()):
        kind = path.partition("/")[0]
        if kind in PARTS and not uncounted(path):
            found.setdefault(kind, hashlib.sha256()).update(path.encode() + b"\0" + _bytes(leaf.value))
    return {kind: digest.hexdigest() for kind, digest in found.items()}


def _bytes(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return repr(value).encode()


if __name__ == "__main__":
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What components print goes to standard error, not in between.
    os.dup2(2, 1)
    try:
        lines.write(json.dumps(main(json.loads(sys.argv[1]))) + "\n")
        lines.flush()
    except NlpkernelError as error:
        for problem in error.problems:
            sys.stderr.write(f"error: {problem}\n")
        sys.exit(error.exit_code)
