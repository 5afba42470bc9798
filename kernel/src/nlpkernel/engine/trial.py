"""A run that writes down every number of its steps: one arm of `verify-resume`, in processes of its own.

    python -m nlpkernel.engine.trial '{"plan": ..., "folder": ..., "steps": ..., "saves": [...], "resume": ...,
                                       "rank": ..., "name": ..., "world": ..., "launch": ..., "several": ...}'

One JSON object a line on standard output, as the steps end; floats are written in hexadecimal, so that nothing is
rounded. The losses are those of this worker's share, or of all where the update tells them. Without a rank it is a
server, until SIGTERM. The end of standard input ends the process: whoever started it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nlpkernel.engine.api import Loop
from nlpkernel.errors import NlpkernelError
from nlpkernel.events import Event, RunStarted, StepCompleted
from nlpkernel.plan import Plan
from nlpkernel.supervise.post import Post


def main(asked: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Run the plan to step `steps`, saving after the steps in `saves`."""

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            tell({"begins": event.start.step})
        elif isinstance(event, StepCompleted):
            losses = {
                name: _exact(float(value) / event.totals[name]) if event.totals[name] else None
                for name, value in event.sums.items()
            }
            norm = None if event.norm is None else _exact(float(event.norm))
            tell({"step": event.progress.step, "numbers": {**losses, "norm": norm}})

    loop = Loop(
        Plan.load(asked["plan"]),
        Path(asked["folder"]),
        resume="newest" if asked["resume"] else None,
        listen=listen,
        quiet=True,
        rehearsal=not asked["several"],
        post=TrialPost(asked),
    )
    saves = set(asked["saves"])
    for session in loop.steps():
        if session.progress.step in saves:
            session.save()
        if session.progress.step == asked["steps"]:
            # As a signal would: saved, and without the evaluation that ends a run.
            session.stop = session.stop or ("interrupted", "the trial ends here")


class TrialPost(Post):
    """That of one of several processes, whose folder is there already; or of one alone. A server ends at once where it
    is told to: the workers are done."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__()
        self.serves = asked["rank"] is None
        self.rank = -1 if self.serves else asked["rank"]
        self.world, self.launch = asked["world"], asked["launch"]
        self.supervised = asked["several"]
        self.name = asked["name"] if self.supervised else ""

    def asks(self, number: int) -> None:
        """End a server."""
        if self.serves:
            self.dismissed = True
            raise SystemExit(0)


def _exact(value: float) -> str:
    return value.hex()


def _lines() -> Callable[[dict[str, Any]], None]:
    """A writer of lines on standard output; what components print goes to standard error, not in between."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(line: dict[str, Any]) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    return tell


def _end_with_the_proof() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_proof, name="nlpkernel-trial", daemon=True).start()
    try:
        main(json.loads(sys.argv[1]), _lines())
    except NlpkernelError as error:
        for problem in error.problems:
            sys.stderr.write(f"error: {problem}\n")
        sys.exit(error.exit_code)
