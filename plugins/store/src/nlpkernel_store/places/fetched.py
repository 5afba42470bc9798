"""Copies of far files on this machine, to be mapped into memory."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from nlpkernel_store.places.conditional import AT_ONCE, PART

#: After so many seconds without a change nobody is fetching a file any more.
_ABANDONED = 3600.0


class Fetched:
    """Copies below a folder. One is reused while it has the size of the far file, and that file is still the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str, size: int, mark: str, part: Callable[[int, int], bytes]) -> Path:
        """Where the copy of a file of `size` bytes lies, made now if need be. `mark` tells one content of the name
        from another. `part` gives the bytes from one position up to another."""
        short = hashlib.sha256(mark.encode()).hexdigest()[:8]
        path = self._folder / f"{quote(name, safe='')}@{short}"
        try:
            if path.stat().st_size == size:
                return path
        except FileNotFoundError:
            pass
        self._folder.mkdir(parents=True, exist_ok=True)
        aside = self._folder / f".{os.getpid()}-{secrets.token_hex(4)}"
        try:
            _copy(aside, size, part)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        for other in self._copies(name):
            if other != path:
                other.unlink(missing_ok=True)
        return path

    def forget(self, name: str) -> bool:
        """Remove the copies of a file; tell whether there was one."""
        found = self._copies(name)
        for path in found:
            path.unlink(missing_ok=True)
        return bool(found)

    def clean(self, names: Callable[[], Iterable[str]]) -> None:
        """Remove copies whose file is not among `names` any more, and those that nobody completes any more."""
        there = self._there()
        kept = {quote(name, safe="") for name in names()} if there else ()
        for path in there:
            if path.name.startswith("."):
                gone = time.time() - path.stat().st_mtime > _ABANDONED
            else:
                gone = path.name.rpartition("@")[0] not in kept
            if gone:
                path.unlink(missing_ok=True)

    def _copies(self, name: str) -> list[Path]:
        return [path for path in self._there() if path.name.rpartition("@")[0] == quote(name, safe="")]

    def _there(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if path.is_file()] if self._folder.is_dir() else []


def _copy(path: Path, size: int, part: Callable[[int, int], bytes]) -> None:
    """Write what `part` gives, a few parts at a time, in order."""
    under_way: deque[Future[bytes]] = deque()
    with open(path, "xb") as file, ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store-fetch") as pool:
        try:
            for start in range(0, size, PART):
                if len(under_way) == AT_ONCE:
                    file.write(under_way.popleft().result())
                under_way.append(pool.submit(part, start, min(start + PART, size)))
            file.writelines(each.result() for each in under_way)
        except BaseException:
            for each in under_way:
                each.cancel()
            raise
        if file.tell() != size:
            raise OSError(f"{file.tell()} bytes arrived of {size}")
