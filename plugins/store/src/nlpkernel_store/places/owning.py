"""Whose versions lie at a place: two runs that write to one prefix would take each other's files for leftovers."""

from __future__ import annotations

import json
import platform
import secrets
import time
from pathlib import Path
from typing import Any

from nlpkernel import runs
from nlpkernel.errors import CheckpointError, NlpkernelError, Place, fail
from nlpkernel_store.codes import OWNER as COMPONENT
from nlpkernel_store.places import Place as Files

#: The file at the place that says whose it is, and the one in the run's own folder with the same content.
OWNER = "owner"


def own(place: Files, folder: Path, run: str) -> None:
    """Let a place belong to the run whose own files are in `folder`, now and for good, or see that it does. `run`: the
    run's name, for messages.

    Raise CheckpointError where another run owns it (STO053), or where a file cannot be created there on the condition
    that there is none (STO052), which is tried out; OSError where the place or the folder does not answer.
    """
    mine = _mine(folder, run)
    try:
        place.create(OWNER, [mine], size=len(mine))
    except FileExistsError:
        theirs = place.read(OWNER)
        if theirs != mine:
            raise _another(place, theirs) from None
    except OSError as error:
        if not getattr(place, "creates", True):
            raise _careless(place, str(error.strerror)) from error
        raise
    try:
        place.create(OWNER, [mine], size=len(mine))
    except FileExistsError:
        return
    raise _careless(place, "it made a file anew that was there already, against the condition")


def _mine(folder: Path, run: str) -> bytes:
    path = folder / OWNER
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    facts = {"id": secrets.token_hex(16), "run": run, "host": platform.node(), "since": int(time.time())}
    folder.mkdir(parents=True, exist_ok=True)
    runs.write(path, json.dumps(facts, sort_keys=True))
    return path.read_bytes()


def _another(place: Files, data: bytes) -> NlpkernelError:
    try:
        facts: Any = json.loads(data)
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts["since"]))
        who = f"the run {facts['run']!r} of {facts['host']} (since {since}, id {facts['id'][:8]})"
    except (ValueError, TypeError, KeyError):
        who = "somebody else"
    return fail(
        CheckpointError,
        "STO053",
        f"the versions there belong to {who}, so this run does not write there",
        place=Place(place.describe()),
        owner=COMPONENT,
        hint="give every run a checkpoint.url of its own; if that run is gone for good, remove the file "
        f"{place.describe(OWNER)}, and this one takes over what lies there",
    )


def _careless(place: Files, reason: str) -> NlpkernelError:
    return fail(
        CheckpointError,
        "STO052",
        f"a file cannot be created there on the condition that there is none: {reason}",
        place=Place(place.describe()),
        owner=COMPONENT,
        hint="use a service that honours conditional writes (S3 does, with If-None-Match), or a local folder",
    )
