"""Names in the folder `versions`, and what becomes of those that a dead process left there.

    step-00000200                           a version
    .tmp-<pid>-<host><random>               one that is being written, or deleted
    .was-step-00000200-<pid>-<host><random> one that is being replaced by a newer save of the same step

A replaced version counts until its successor is in place, so that at every moment one of the two does.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nlpkernel_folder.manifest import foreign_files

_VERSION = re.compile(r"step-(\d{8,})")
_ASIDE = re.compile(r"\.(?:tmp|was-(?P<version>step-\d{8,}))-(?P<pid>\d+)-(?P<host>[0-9a-f]{8})[0-9a-f]{8}")
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
#: After so many seconds without a change the writer of a folder counts as dead, whatever its process id says.
_ABANDONED = 24 * 3600.0

#: Names in use by this process: its id alone says nothing, for in a container it is the same after a restart.
_in_use: set[str] = set()


def version_name(step: int) -> str:
    """The name of the version of a step."""
    return f"step-{step:08d}"


@contextmanager
def aside(folder: Path, replaced: str | None = None) -> Iterator[Path]:
    """A new path in `folder` that readers take for no version. `replaced` names the version that is put there for
    the time of its replacement. In the end it is settled what becomes of what is there.
    """
    kind = "tmp" if replaced is None else f"was-{replaced}"
    name = f".{kind}-{os.getpid()}-{_HOST}{secrets.token_hex(4)}"
    _in_use.add(name)
    try:
        yield folder / name
    finally:
        _settle(folder / name, replaced)
        _in_use.discard(name)


def _settle(path: Path, replaced: str | None) -> None:
    """Put back a replaced version that got no successor; move files of others to the successor of one that did;
    remove the rest.
    """
    if not path.exists():
        return
    if replaced is not None:
        successor = path.with_name(replaced)
        if not successor.exists():
            path.rename(successor)
            return
        for foreign in foreign_files(path):
            foreign.rename(successor / foreign.relative_to(path))
    shutil.rmtree(path)


def versions(folder: Path) -> dict[str, Path]:
    """Names of versions and where each lies, oldest first; whether they are sound is not looked at."""
    found: dict[str, Path] = {}
    replaced: dict[str, Path] = {}
    if not folder.is_dir():
        return found
    with os.scandir(folder) as entries:
        for entry in entries:
            if _VERSION.fullmatch(entry.name):
                found[entry.name] = Path(entry.path)
            elif (match := _ASIDE.fullmatch(entry.name)) and match["version"]:
                replaced[match["version"]] = Path(entry.path)
    return dict(sorted((replaced | found).items(), key=lambda item: step_of(item[0])))


def step_of(name: str) -> int:
    """The step in the name of a version."""
    return int(name.removeprefix("step-"))


def recover(folder: Path) -> list[str]:
    """Remove what dead processes left half done, and put back a version that one had begun to replace.
    Returns the names of what was there. Raise OSError where the folder cannot be written.
    """
    done = []
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        match = _ASIDE.fullmatch(path.name)
        if not match or not _dead(path, int(match["pid"]), match["host"]):
            continue
        _settle(path, match["version"])
        done.append(path.name)
    return done


def _dead(path: Path, pid: int, host: str) -> bool:
    if path.name in _in_use:
        return False
    if host == _HOST and (pid == os.getpid() or not _alive(pid)):
        return True
    times = [entry.stat().st_mtime for entry in (path, *path.rglob("*"))]
    return time.time() - max(times) > _ABANDONED


def _alive(pid: int) -> bool:
    # On Windows os.kill ends the process that it asks about.
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
