"""What the servers keep in the run's folder for workers of other machines: keys, and where they listen. Light."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nlpkernel_zmq.security.keys import START, worker_file

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_zmq.component import ZmqPs

#: The folder of the keys, in that of the servers.
KEYS = "keys"
#: The file with the word of this start of the run, in that folder.
LAUNCH = "launch"
#: Seconds in which the servers begin to listen, before somebody is told how to join.
_PATIENCE = 60.0


def folder_of(run: Run) -> Path:
    """That of the servers."""
    return run.folder / ".servers"


def endpoint_file(folder: Path, name: str) -> Path:
    """Where it stands at which endpoint a socket listens."""
    return folder / f"{name}.endpoint"


def told(path: Path, run: str) -> str:
    """An endpoint of a run; "" where there is none."""
    try:
        word, _, endpoint = path.read_text(encoding="ascii").strip().partition(" ")
    except FileNotFoundError:
        return ""
    return endpoint if word == run else ""


def tell_how(settings: ZmqPs, run: Run) -> None:
    """The first worker says what lets the others of the plan join, once the servers listen."""
    numbers = range(settings.here, settings.workers)
    if run.rank or not numbers:
        return
    folder, deadline = folder_of(run), time.monotonic() + _PATIENCE
    word = os.environ.get(START, run.launch)
    while not (control := told(endpoint_file(folder, "control"), word)):
        if time.monotonic() > deadline:
            return  # The servers did not begin; that is told when they give no answer.
        run.pulse.moves += 1
        time.sleep(0.05)
    keys = (folder / KEYS).resolve()
    for number in numbers:
        file = worker_file(keys, number)
        run.notice(
            "communicator zmq-ps",
            f"worker {number} is to join from another machine: copy the plan and {file} there, and type "
            f"`nlpkernel join {control} PLAN --keys {file.name}`",
            level="warning",
        )
