"""A local folder as a place: files are written aside, waited for, and given their name."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

#: Where files lie that are being written, and the file there that is locked; it stays.
ASIDE = ".aside"
LOCK = f"{ASIDE}/lock"
#: Seconds for which another process is waited for that has the lock.
_PATIENCE = 60.0
_NAME = re.compile(r"(?P<pid>\d+)-(?P<host>[0-9a-f]{8})-[0-9a-f]{8}")
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
#: After so many seconds without a change the writer of a file counts as dead, whatever its process id says.
_ABANDONED = 24 * 3600.0
#: Bytes that are worth a call of their own.
_LARGE = 1 << 20
#: Answers of a file system that has no hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

#: Bytes that `stream` reads at a time.
_PIECE = 8 << 20

#: Names in use by this process: its id alone says nothing, for in a container it is the same after a restart.
_in_use: set[str] = set()


class Local:
    """The files below a folder, which is made with the first of them."""

    def __init__(self, folder: Path, *, fsync: bool = True) -> None:
        self.folder = folder
        self._fsync = fsync

    def create(self, name: str, chunks: Iterable[bytes | memoryview], *, size: int | None = None) -> int:
        """See Place."""
        path = self.folder / name
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        with self._aside() as aside:
            written = self._write(aside, chunks)
            self._folder(path.parent)
            _give_name(aside, path)
            self._sync_folder(path.parent)
        return written

    def replace(self, name: str, data: bytes) -> None:
        """See Place."""
        path = self.folder / name
        with self._aside() as aside:
            self._write(aside, [data])
            self._folder(path.parent)
            os.replace(aside, path)
            self._sync_folder(path.parent)

    def read(self, name: str) -> bytes:
        """See Place."""
        return (self.folder / name).read_bytes()

    def local(self, name: str) -> Path:
        """See Place."""
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return path

    def copies(self, name: str) -> bool:
        """See Place."""
        return False

    def forget(self, name: str) -> bool:
        """See Place. There are no copies."""
        return False

    def stream(self, name: str) -> Iterator[bytes]:
        """See Place."""
        with open(self.folder / name, "rb", buffering=0) as file:
            while chunk := file.read(_PIECE):
                yield chunk

    def names(self, prefix: str = "") -> Mapping[str, int]:
        """See Place."""
        start = self.folder / prefix.rpartition("/")[0]
        found: dict[str, int] = {}
        for folder, below, files in os.walk(start):
            if Path(folder) == self.folder and ASIDE in below:
                below.remove(ASIDE)
            for file in files:
                path = Path(folder, file)
                name = path.relative_to(self.folder).as_posix()
                if name.startswith(prefix):
                    try:
                        found[name] = path.stat().st_size
                    except FileNotFoundError:
                        continue  # Removed since the folder was read.
        return dict(sorted(found.items()))

    def remove(self, name: str) -> None:
        """See Place. Folders that became empty go too."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        parent = path.parent
        while self._remove_empty(parent):
            parent = parent.parent

    def clean(self) -> None:
        """See Place. So do folders that were made for a file which never came, or outlived their last one."""
        aside = self.folder / ASIDE
        for path in list(aside.iterdir()) if aside.is_dir() else []:
            match = _NAME.fullmatch(path.name)
            if match and _dead(path, int(match["pid"]), match["host"]):
                path.unlink(missing_ok=True)
        for folder, _, _ in os.walk(self.folder, topdown=False):
            self._remove_empty(Path(folder))

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """See Place."""
        from filelock import FileLock

        path = self.folder / LOCK
        self._folder(path.parent)
        with FileLock(path, timeout=_PATIENCE):
            yield True

    def free(self) -> int | None:
        """See Place."""
        existing = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        return shutil.disk_usage(existing).free

    def describe(self, name: str = "") -> str:
        """See Place."""
        return str(self.folder / name)

    def close(self) -> None:
        """See Place."""

    @contextmanager
    def _aside(self) -> Iterator[Path]:
        """A new path that nobody takes for a file of the store; what is left there in the end is removed."""
        name = f"{os.getpid()}-{_HOST}-{secrets.token_hex(4)}"
        path = self.folder / ASIDE / name
        _in_use.add(name)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            _in_use.discard(name)

    def _write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> int:
        written = 0
        self._folder(path.parent)
        with open(path, "xb", buffering=0) as file:
            for chunk in chunks:
                view = memoryview(chunk)
                while view.nbytes:
                    # One call writes at most 2 GiB, and less where the disk has room for less.
                    done = file.write(view)
                    view = view[done:]
                    if self._fsync:
                        _start_writing(file.fileno(), written, done)
                    written += done
            if self._fsync:
                os.fsync(file.fileno())
        return written

    def _remove_empty(self, folder: Path) -> bool:
        """Those of the first level stay: somebody may be putting a file into them."""
        if folder.parent in (self.folder, self.folder.parent) or folder == self.folder:
            return False
        try:
            folder.rmdir()
        except OSError:
            return False
        return True

    def _folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        while folder != self.folder.parent:
            self._sync_folder(folder.parent)
            folder = folder.parent

    def _sync_folder(self, folder: Path) -> None:
        if self._fsync:
            sync_folder(folder)


def _start_writing(descriptor: int, start: int, size: int) -> None:
    """Let the kernel write these bytes while the next ones come: left to itself it would begin with the fsync."""
    if size >= _LARGE and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Wait until the list of names in a folder is on the disk. Windows cannot sync folders and needs not."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_name(aside: Path, path: Path) -> None:
    """Name a file without ever replacing another one."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        os.rename(aside, path)


def _dead(path: Path, pid: int, host: str) -> bool:
    if path.name in _in_use:
        return False
    if host == _HOST and (pid == os.getpid() or not _alive(pid)):
        return True
    try:
        return time.time() - path.stat().st_mtime > _ABANDONED
    except FileNotFoundError:
        return False


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
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return True  # A system that does not tell.
    # One that has ended keeps its number until somebody asks for its exit code; in a container often nobody does.
    return state not in (b"Z", b"X")
