"""The cache: what was cleaned or tokenized once, found again by content, settings and releases."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from filelock import FileLock, Timeout

from nlpkernel.components import fields_of, is_settings
from nlpkernel.errors import DataError, fail
from nlpkernel_text import __version__

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.corpus import Corpus
    from nlpkernel_text.fields import Fields
    from nlpkernel_text.origins import Listed
    from nlpkernel_text.reading.files import File

#: Raised when the files of an entry change their meaning.
FORMAT = 4

_FACTS = "facts.json"
#: Its time of change says when the entry was used last.
_USED = ".used"
_DAY = 86400.0
#: Seconds for which an entry is safe from the limit after it was taken: whoever took it may still be reading.
FRESH = 3600.0


@attrs.frozen
class Entry:
    """A complete entry: its folder, and what was written down of it."""

    folder: Path
    facts: Mapping[str, Any]


def content_key(corpus: Corpus, digest: Callable[[File], str]) -> str:
    """A key of the documents as their files have them: the content of all files, as `digest` tells it, and the settings
    that they are read by."""
    readers: dict[int, Any] = {}
    for each in corpus.files:
        readers.setdefault(id(each.format), owned(corpus.run, each.format))
    head = {
        "format": FORMAT,
        "version": __version__,
        "on_error": corpus.text.on_error,
        "own": corpus.own,
        "guessing": releases(["charset-normalizer"] if any(map(_guessed, corpus.files)) else []),
        "files": [
            (readers[id(each.format)], each.file.format, each.file.encoding, _written(each.fields))
            for each in corpus.files
        ],
    }
    found = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for each in corpus.files:
        found.update(digest(each.file).encode())
    return found.hexdigest()


def derived_key(key: str, **more: Any) -> str:
    """A key of what is made of something with a key, in a way that `more` says, as plain data."""
    return hashlib.sha256(json.dumps([FORMAT, __version__, key, more], sort_keys=True).encode()).hexdigest()


def owned(run: Run, component: object) -> Any:
    """A component's settings as plain data, and the releases that it is from and that it goes by (`libraries`, names of
    distributions): another one may make something else."""
    if component is None:
        return None
    owner = run.hooks.owner(component) if run.hooks is not None else type(component).__name__
    return [owner, described(component), releases(getattr(component, "libraries", ()))]


def releases(names: Sequence[str]) -> dict[str, str | None]:
    """The releases of distributions; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _guessed(listed: Listed) -> bool:
    return listed.file.encoding == "auto"


def _written(fields: Fields) -> dict[str, Any]:
    templates = {name: list(template) for name, template in fields.templates.items()}
    return {"templates": templates, "words": fields.words}


def described(component: object) -> Any:
    """A component's class and settings as plain data; of a file that a setting names, its content."""
    if isinstance(component, Path):
        if component.is_file():
            with component.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        # Not by its path: a folder may move. Who reads more of it than names and sizes says so by `files_read`.
        inside = sorted(path for path in component.rglob("*") if path.is_file())
        return [(path.relative_to(component).as_posix(), path.stat().st_size) for path in inside]
    if isinstance(component, Mapping):
        return {str(name): described(value) for name, value in component.items()}
    if isinstance(component, (list, tuple)):
        return [described(value) for value in component]
    if is_settings(type(component)):
        kind = type(component)
        # It says itself what it reads of a folder that a setting names.
        reads = getattr(component, "files_read", None)
        found = {field.name: getattr(component, field.name) for field in fields_of(kind)}
        values = {
            name: "a folder" if reads and isinstance(value, Path) and value.is_dir() else described(value)
            for name, value in found.items()
        }
        files = reads() if reads else ()
        values["files read"] = [[file.name, described(file)] for file in files]
        return {"class": f"{kind.__module__}:{kind.__qualname__}", "settings": values}
    return component


class Cache:
    """Entries in a folder, each in a folder of its own that is written aside and renamed when it is complete. `limit`:
    most bytes of all of them; those that were not used for longest go when one is added."""

    def __init__(self, run: Run, limit: int | None = None) -> None:
        self.run = run
        self.limit = limit
        self.root = run.cache / "text"
        self.locks = run.cache / "text.locks"

    def get(self, key: str, build: Callable[[Path], dict[str, Any]]) -> Entry:
        """The entry `key`, built where it is not there or is damaged.

        `build(folder)` writes files into a folder and returns facts of them. Of several processes that want the
        same entry (the workers of a run), one builds it, and the others wait. On a file system without locks
        each builds, and the first that is done leaves its entry, which the others take.
        """
        folder = self.folder(key)
        entry, _ = self._look(folder)
        if entry is not None:
            return entry
        try:
            with self._turn(key):
                entry, damaged = self._look(folder)
                if entry is not None:
                    return entry
                if damaged:
                    message = f"the cache is damaged ({damaged}); it is built again"
                    self.run.notice("data text", message, level="warning")
                entry = self._build(folder, build, bool(damaged))
                self._shrink(folder)
                return entry
        except OSError as error:
            raise fail(
                DataError,
                "TXT011",
                f"the cache cannot be written: {error}",
                hint=f"the cache is in {self.root}",
            ) from error

    def folder(self, key: str) -> Path:
        """Where an entry is, or would be."""
        return self.root / key[:32]

    def remove(self, folder: Path) -> int:
        """Remove an entry; the bytes that it had."""
        size = size_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return size

    def _shrink(self, newest: Path) -> None:
        """Keep to the limit, as far as entries are not in use."""
        if self.limit is None:
            return
        entries = [
            folder for folder in self.root.iterdir() if not folder.name.startswith(".") and folder != newest
        ]
        sizes = {folder: size_of(folder) for folder in entries}
        total = sum(sizes.values()) + size_of(newest)
        for folder in sorted(entries, key=_used):
            if total <= self.limit or time.time() - _used(folder) < FRESH:
                break
            shutil.rmtree(folder, ignore_errors=True)
            total -= sizes[folder]

    def _look(self, folder: Path) -> tuple[Entry | None, str]:
        return self._read(folder) if folder.exists() else (None, "")

    @contextmanager
    def _turn(self, key: str) -> Iterator[None]:
        """Wait until no other process builds this entry. Whoever waits is not stuck."""
        self.locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.locks / key[:32])
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(lock.acquire(timeout=1.0))
                    break
                except Timeout:
                    self.run.pulse.moves += 1
                except NotImplementedError:
                    break
            yield

    def _build(self, folder: Path, build: Callable[[Path], dict[str, Any]], replace: bool) -> Entry:
        self.root.mkdir(parents=True, exist_ok=True)
        self._sweep()
        aside = Path(tempfile.mkdtemp(prefix=".building-", dir=self.root))
        try:
            facts = build(aside)
            paths = sorted(path for path in aside.rglob("*") if path.is_file())
            facts["files"] = {path.relative_to(aside).as_posix(): _facts(path) for path in paths}
            written = json.dumps(facts, indent=1)
            (aside / _FACTS).write_text(f"{_digest(written)}\n{written}", encoding="utf-8")
            _touch(aside)
            if replace:
                # Renamed before it is removed: nobody may find half of it.
                old = Path(tempfile.mkdtemp(prefix=".building-", dir=self.root))
                with suppress(FileNotFoundError):
                    folder.rename(old / "damaged")
                shutil.rmtree(old, ignore_errors=True)
            try:
                aside.rename(folder)
            except OSError:
                # Another process was done first; what it left is the same.
                entry, damaged = self._read(folder) if folder.exists() else (None, "it is not there")
                if entry is None:
                    raise OSError(f"{folder} was written by another process, and {damaged}") from None
                return entry
            return Entry(folder, facts)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _read(self, folder: Path) -> tuple[Entry | None, str]:
        """The entry in a folder, or what is wrong with it."""
        try:
            digest, _, written = (folder / _FACTS).read_text(encoding="utf-8").partition("\n")
            if digest != _digest(written):
                return None, f"{_FACTS} is not what was written"
            facts = json.loads(written)
            for name, wanted in facts["files"].items():
                if _facts(folder / name) != wanted:
                    return None, f"{name} is not what was written"
        except (OSError, ValueError) as error:
            return None, f"{type(error).__name__}: {error}"
        with suppress(OSError):
            _touch(folder)
        return Entry(folder, facts), ""

    def _sweep(self) -> None:
        """Remove what processes left that were killed while they built, a day ago or earlier."""
        for path in self.root.glob(".building-*"):
            try:
                # A file that is being written changes its own time, and not that of the folder.
                newest = max(each.stat().st_mtime for each in (path, *path.rglob("*")))
                old = time.time() - newest > _DAY
            except FileNotFoundError:
                continue
            if old:
                shutil.rmtree(path, ignore_errors=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return {
            "bytes": os.fstat(stream.fileno()).st_size,
            "sha256": hashlib.file_digest(stream, "sha256").hexdigest(),
        }


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder and below; 0 where it is not there."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _touch(folder: Path) -> None:
    """The entry is used now. By our own clock: that of a file system may stand still for milliseconds."""
    now = time.time_ns()
    (folder / _USED).touch()
    os.utime(folder / _USED, ns=(now, now))


def _used(folder: Path) -> float:
    try:
        return (folder / _USED).stat().st_mtime
    except FileNotFoundError:
        return 0.0
