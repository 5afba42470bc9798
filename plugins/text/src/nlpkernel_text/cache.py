"""The token cache: what was tokenized once, found again by content, tokenizer and settings."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from filelock import FileLock, Timeout

from nlpkernel.components import fields_of, is_settings
from nlpkernel.errors import DataError, fail
from nlpkernel_text import __version__

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.context import Task as Work
    from nlpkernel_text.corpus import Corpus

#: Raised when the files of an entry change their meaning.
FORMAT = 1

_FACTS = "facts.json"
#: Settings of the data component on which the tokens depend; packing and sampling come after them.
_TOKENS = ("format", "field", "documents", "split", "on_error")
_DAY = 86400.0


@attrs.frozen
class Entry:
    """A complete entry: its folder, and what was written down of it."""

    folder: Path
    facts: Mapping[str, Any]


def content_key(corpus: Corpus, stamps: Sequence[tuple[int, int]], work: Work) -> str:
    """A key of everything on which the tokens depend: the bytes of all files, the tokenizer, the settings."""
    digest = hashlib.sha256()
    text = corpus.text
    settings = {name: getattr(text, name) for name in _TOKENS}
    settings["share"] = text.share
    settings["own"] = corpus.own
    head = {
        "format": FORMAT,
        "version": __version__,
        "settings": settings,
        "tokenizer": described(text.tokenizer),
        "formats": [file.format for file in corpus.files],
    }
    digest.update(json.dumps(head, sort_keys=True).encode())
    for file, (size, _) in zip(corpus.files, stamps, strict=True):
        with file.path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
        work.advance(size)
    return digest.hexdigest()


def described(component: object) -> Any:
    """A component's class and settings as plain data; of a file that a setting names, its content."""
    if isinstance(component, Path):
        if component.is_file():
            with component.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        return str(component)
    if isinstance(component, Mapping):
        return {str(name): described(value) for name, value in component.items()}
    if isinstance(component, (list, tuple)):
        return [described(value) for value in component]
    if is_settings(type(component)):
        kind = type(component)
        values = {field.name: described(getattr(component, field.name)) for field in fields_of(kind)}
        return {"class": f"{kind.__module__}:{kind.__qualname__}", "settings": values}
    return component


class Cache:
    """Entries in a folder, each in a folder of its own that is written aside and renamed when it is complete."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.root = run.cache / "text"
        self.locks = run.cache / "text.locks"

    def get(self, key: str, build: Callable[[Path], dict[str, Any]]) -> Entry:
        """The entry `key`, built where it is not there or is damaged.

        `build(folder)` writes files into a folder and returns facts of them. Of several processes that want the
        same entry (the workers of a run), one builds it, and the others wait. On a file system without locks
        each builds, and the first that is done leaves its entry, which the others take.
        """
        folder = self.root / key[:32]
        entry, _ = self._look(folder)
        if entry is not None:
            return entry
        try:
            with self._turn(key):
                entry, damaged = self._look(folder)
                if entry is not None:
                    return entry
                if damaged:
                    message = f"the token cache is damaged ({damaged}); it is built again"
                    self.run.notice("data text", message, level="warning")
                return self._build(folder, build, bool(damaged))
        except OSError as error:
            raise fail(
                DataError,
                "TXT011",
                f"the token cache cannot be written: {error}",
                hint=f"the cache is in {self.root}",
            ) from error

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
            facts["files"] = {path.name: _facts(path) for path in sorted(aside.iterdir())}
            written = json.dumps(facts, indent=1)
            (aside / _FACTS).write_text(f"{_digest(written)}\n{written}", encoding="utf-8")
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
        return Entry(folder, facts), ""

    def _sweep(self) -> None:
        """Remove what processes left that were killed while they built, a day ago or earlier."""
        for path in self.root.glob(".building-*"):
            try:
                old = time.time() - path.stat().st_mtime > _DAY
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


def stamp(path: Path) -> tuple[int, int]:
    """Size and time of a file: another one means that it was written to."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns
