"""Processes of the same parent on this machine, as /proc tells. Light."""

from __future__ import annotations

import os
from pathlib import Path


def is_sibling(pid: int) -> bool:
    """Whether a process has the parent that this one has, or is this one. Nobody else is sent a signal, whatever number
    it was said to have."""
    if pid == os.getpid():
        return True
    fields = _fields(pid)
    return bool(fields) and int(fields[1]) == os.getppid()


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped (SIGSTOP, a debugger), where the system tells."""
    return _fields(pid)[:1] in (["T"], ["t"])


def _fields(pid: int) -> list[str]:
    """State, parent and so on; nothing where the process is gone or the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
