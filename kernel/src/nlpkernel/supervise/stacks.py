"""Where a process is stuck: its stacks, written by itself when it is asked to."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

#: What asks a process for its stacks. Not by the channel: Python writes them from the signal handler itself, also
#: where C code never gives the interpreter back.
ASK = getattr(signal, "SIGUSR2", None)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


def ask(signal_it: Callable[[int], None], path: Path, seconds: float = 2.0) -> str:
    """Ask a process for its stacks and return what it adds to the file at `path`; empty where it does not answer."""
    if ASK is None or not path.exists():
        return ""
    start = path.stat().st_size
    signal_it(ASK)
    deadline = time.monotonic() + seconds
    text = ""
    while time.monotonic() < deadline:
        time.sleep(0.05)
        with path.open(encoding="utf-8", errors="replace") as file:
            file.seek(start)
            now = file.read()
        if now and now == text:
            break
        text = now
    return text


def place(text: str, thread: int) -> str:
    """Where a thread is, as "file:line in function"; empty where the stacks do not say."""
    inside = False
    for line in text.splitlines():
        if (found := _THREAD.match(line)) is not None:
            inside = int(found[1], 16) == thread
        elif inside and (found := _FRAME.match(line)) is not None:
            return f"{found[1]}:{found[2]} in {found[3]}"
    return ""
