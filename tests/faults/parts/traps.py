"""What befalls a process: installed in it before it does anything, described by plain tables.

A table names `what` befalls it and, as a rule, from which `step` on (0: from the beginning, while the run is opened)
and at which `turn`, the how-manieth time from then on that the thing in question happens.

    call    a function of Python is called or returns (`event`), in any thread; `then` says what follows: "kill"
            (SIGKILL), or "hold", which waits there until `file` exists
    disk    a change of the disk is about to be made below the working folder: a file opened for writing, synced, given
            a name, removed; a folder made or removed. SIGKILL
    torn    a file is opened for writing: from then on no file can grow beyond `bytes`, and the process ends with the
            write that would
    full    as a full disk: no file can grow beyond `bytes` any more, and writing says so; until step `until`, if given
    hold    before `step` begins the loop waits until `file` exists
    gate    syncs of files below `versions` wait until `file` exists
    clock   before each step in `jumps` the clock moves by so many seconds
    weak    the rights of root are given up, so that read-only files are read-only
    record  which functions are called and how often the disk is changed, by step, written to `file` in the end
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Modules whose calls are recorded, and classes of torch that do the work of a step.
RECORDED = ("nlpkernel", "torch.autograd", "torch.optim")
_CHANGES = {"os.rename", "os.link", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR


class Steps:
    """The step that is run, from 1; 0 before the first, the last one while the run is closed."""

    now = 0

    @classmethod
    def watch(cls, begins: Callable[[int], None] = lambda step: None) -> None:
        """Follow the loop of this process, and call `begins` with each step."""
        from nlpkernel.engine.session import Session

        advance = Session.advance

        def watched(session: Session) -> None:
            cls.now = session.progress.step + 1
            begins(cls.now)
            advance(session)

        Session.advance = watched  # type: ignore[method-assign]


class Turn:
    """Tells whether it is a table's turn."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._step, self._left = table.get("step", 0), table.get("turn", 1)
        self._lock = threading.Lock()

    def comes(self) -> bool:
        """Count, and tell whether this is the one."""
        if Steps.now < self._step:
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0


def install(tables: list[dict[str, Any]]) -> None:
    """Let all of them come."""
    Steps.watch()
    for table in tables:
        _KINDS[table["what"]](table)


def die() -> None:
    """As by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def label(frame: Any) -> str:
    """A function by its module and name."""
    return f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}"


def profile(hook: Callable[[Any, str, Any], None]) -> None:
    """See every call, in this thread and those that it starts."""
    threading.setprofile(hook)
    sys.setprofile(hook)


def on_change(change: Callable[[str], None]) -> None:
    """Call `change` before every change of the disk below the working folder, with what it is."""
    here = os.getcwd() + os.sep

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event in _CHANGES:
            path = args[1] if event == "os.symlink" else args[0]
        elif event == "open" and isinstance(args[2], int) and args[2] & _WRITES:
            path = args[0]
        else:
            return
        if isinstance(path, (str, os.PathLike)) and os.path.abspath(path).startswith(here):
            change(event)

    sync = os.fsync

    def synced(descriptor: int) -> None:
        change("fsync")
        sync(descriptor)

    sys.addaudithook(audit)
    os.fsync = synced


def _call(table: dict[str, Any]) -> None:
    module, _, name = table["function"].partition(":")
    wanted, turn = table.get("event", "call"), Turn(table)
    then = die if table.get("then", "kill") == "kill" else _until(Path(table["file"]))

    def hook(frame: Any, event: str, _: Any) -> None:
        called = event == wanted and frame.f_code.co_qualname == name
        if called and frame.f_globals.get("__name__") == module and turn.comes():
            then()

    profile(hook)


def _disk(table: dict[str, Any]) -> None:
    turn = Turn(table)
    on_change(lambda event: die() if turn.comes() else None)


def _torn(table: dict[str, Any]) -> None:
    turn = Turn(table)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    on_change(lambda event: _limit(table["bytes"]) if event == "open" and turn.comes() else None)


def _full(table: dict[str, Any]) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def begins(step: int) -> None:
        if step == table["step"]:
            _limit(table["bytes"])
        elif step == table.get("until"):
            _limit(most)

    Steps.watch(begins)


def _limit(size: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))


def _hold(table: dict[str, Any]) -> None:
    wait = _until(Path(table["file"]))
    Steps.watch(lambda step: wait() if step == table["step"] else None)


def _gate(table: dict[str, Any]) -> None:
    wait, sync = _until(Path(table["file"])), os.fsync

    def synced(descriptor: int) -> None:
        if f"{os.sep}versions{os.sep}" in os.readlink(f"/proc/self/fd/{descriptor}"):
            wait()
        sync(descriptor)

    os.fsync = synced


def _until(file: Path) -> Callable[[], None]:
    def wait() -> None:
        file.with_name(f"{file.name}.reached").touch()
        while not file.exists():
            time.sleep(0.002)

    return wait


def _clock(table: dict[str, Any]) -> None:
    jumps = {int(step): float(seconds) for step, seconds in table["jumps"].items()}
    real, real_ns, moved = time.time, time.time_ns, 0.0

    def begins(step: int) -> None:
        nonlocal moved
        moved += jumps.get(step, 0.0)

    time.time = lambda: real() + moved
    time.time_ns = lambda: real_ns() + int(moved * 1e9)
    Steps.watch(begins)


def _weak(table: dict[str, Any]) -> None:
    # Of all versions of the call the third one is current since Linux 2.6.26; empty sets are the same to all.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")


def _record(table: dict[str, Any]) -> None:
    calls: Counter[tuple[str, int]] = Counter()
    changes: Counter[tuple[str, int]] = Counter()

    def hook(frame: Any, event: str, _: Any) -> None:
        if event == "call" and str(frame.f_globals.get("__name__")).startswith(RECORDED):
            calls[label(frame), Steps.now] += 1

    def write() -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        told = [[[*key, number] for key, number in counter.items()] for counter in (calls, changes)]
        Path(table["file"]).write_text(json.dumps(told))

    on_change(lambda event: changes.update([(event, Steps.now)]))
    profile(hook)
    ENDINGS.append(write)


#: What is to be done when the command is over.
ENDINGS: list[Callable[[], None]] = []

_KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "call": _call,
    "disk": _disk,
    "torn": _torn,
    "full": _full,
    "hold": _hold,
    "gate": _gate,
    "clock": _clock,
    "weak": _weak,
    "record": _record,
}
