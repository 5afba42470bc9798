"""Object stores and remote folders as a place, through fsspec."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from nlpkernel.errors import CheckpointError, NlpkernelError, fail
from nlpkernel_store.codes import OWNER
from nlpkernel_store.places.conditional import PART, Writer, writer_for
from nlpkernel_store.places.fetched import Fetched
from nlpkernel_store.places.hidden import public, suspicious
from nlpkernel_store.places.patience import Patience, code_of

_T = TypeVar("_T")

#: What brings the drivers that are not part of fsspec, by protocol.
_EXTRAS = {"s3": "s3", "s3a": "s3"}
#: Seconds until a connection that does not come, or an answer that does not, counts as failed; what a plan's options
#: say instead wins. Calls are made again by Patience, which tells so, and not by the client, which does not.
_S3 = {"connect_timeout": 5, "read_timeout": 60, "retries": {"mode": "standard", "total_max_attempts": 1}}


class Remote:
    """Files below a URL. Every call is made again while its failure is one that passes; listings are never served
    from a cache. Creating is conditional, on file systems that are known to do it; on others only reading goes."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any],
        *,
        cache: Path,
        secrets: Mapping[str, str] = MappingProxyType({}),
        patience: Patience | None = None,
    ) -> None:
        """`secrets` are options that no message shows. Raise CheckpointError where there is no driver (STO050) or the
        driver does not take the options (STO051)."""
        self._url = public(url)
        options = {**options, **secrets}
        hidden = {value for _, value in suspicious(options)} | set(secrets.values())
        self._secrets = sorted(filter(None, hidden), key=len, reverse=True)
        self._patience = patience or Patience()
        self._system, self._root = self._open(url, options)
        self._writer: Writer | None = writer_for(self._system, self._patience, self._words)
        self._fetched = Fetched(cache)

    @property
    def creates(self) -> bool:
        """Whether a file can be made here on the condition that there is none."""
        return self._writer is not None

    @property
    def kind(self) -> str:
        """The name of the file system's class, for messages."""
        return type(self._system).__name__

    def create(self, name: str, chunks: Iterable[bytes | memoryview], *, size: int | None = None) -> int:
        """See Place. An upload takes about 100 MB of memory, whatever its size (more where an object has over 80 GB),
        and what of it fails is sent again."""
        writer = self._writing(name)
        return self._told("written", name, lambda: writer.create(self._path(name), chunks, size))

    def replace(self, name: str, data: bytes) -> None:
        """See Place."""
        self._writing(name)
        self._again("written", name, lambda: self._system.pipe_file(self._path(name), data))

    def read(self, name: str) -> bytes:
        """See Place."""
        data: bytes = self._again("read", name, lambda: self._system.cat_file(self._path(name)))
        return data

    def local(self, name: str) -> Path:
        """See Place."""
        facts = self._again("found", name, lambda: self._system.info(self._path(name)))
        if facts["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name))

        def part(start: int, end: int) -> bytes:
            data: bytes = self._again(
                "read", name, lambda: self._system.cat_file(self._path(name), start=start, end=end)
            )
            return data

        mark = "".join(f"{key}={facts.get(key)};" for key in ("ETag", "created", "mtime", "LastModified"))
        return self._fetched.path(name, facts["size"], mark, part)

    def stream(self, name: str) -> Iterator[bytes]:
        """See Place."""
        size = self._again("found", name, lambda: self._system.info(self._path(name)))["size"]
        for start in range(0, size, PART):
            end = min(start + PART, size)
            yield self._again(
                "read",
                name,
                lambda start=start, end=end: self._system.cat_file(self._path(name), start=start, end=end),  # type: ignore[misc]
            )

    def copies(self, name: str) -> bool:
        """See Place."""
        return True

    def forget(self, name: str) -> bool:
        """See Place."""
        return self._fetched.forget(name)

    def names(self, prefix: str = "") -> Mapping[str, int]:
        """See Place."""
        within = prefix.rpartition("/")[0]

        def find() -> dict[str, Any]:
            self._system.invalidate_cache()
            try:
                found: dict[str, Any] = self._system.find(self._path(within), detail=True)
            except FileNotFoundError as error:
                if code_of(error) == "NoSuchBucket":
                    raise
                return {}
            return found

        start = f"{self._root}/"
        found = self._again("listed", within, find)
        named = (
            (path.removeprefix(start), facts["size"])
            for path, facts in found.items()
            if path.startswith(start)
        )
        return dict(sorted((name, size) for name, size in named if name and name.startswith(prefix)))

    def remove(self, name: str) -> None:
        """See Place."""
        self._writing(name)
        with suppress(FileNotFoundError):
            self._again("removed", name, lambda: self._system.rm_file(self._path(name)))
        self._fetched.forget(name)

    def clean(self) -> None:
        """See Place. Local copies of files that are gone go too."""
        writer = self._writing("")
        self._told("cleaned up", "", lambda: writer.clean(self._root))
        self._fetched.clean(self.names)

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """See Place. There are none."""
        yield False

    def free(self) -> int | None:
        """See Place. Nobody knows."""
        return None

    def describe(self, name: str = "") -> str:
        """See Place."""
        return f"{self._url}/{name}" if name else self._url

    def close(self) -> None:
        """See Place. Connections are closed with the file system, which nobody else has."""
        self.__dict__.pop("_system", None)
        self._writer = None

    def __repr__(self) -> str:
        return f"Remote({self._url!r})"

    def _open(self, url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
        protocol = url.partition("://")[0]
        extra = _EXTRAS.get(protocol, "remote")
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]
        except ImportError as error:
            raise self._no_driver(extra, error) from error
        if "::" in url:
            raise self._not_opened("chained URLs are not taken")
        given = dict(options)
        if protocol in ("s3", "s3a"):
            given["config_kwargs"] = {**_S3, **given.get("config_kwargs", {})}
        # An instance of our own: those that fsspec shares between callers remember listings and other people's options.
        fresh = {"skip_instance_cache": True, "use_listings_cache": False}
        try:
            system, root = url_to_fs(url, **{**given, **fresh})
        except ImportError as error:
            raise self._no_driver(extra, error) from error
        except Exception as error:
            raise self._not_opened(self._words(error)) from error
        if protocol in ("s3", "s3a"):
            system.retries = 1
        return system, root.rstrip("/")

    def _no_driver(self, extra: str, error: ImportError) -> NlpkernelError:
        return fail(
            CheckpointError,
            "STO050",
            f"the versions at {self._url} need a driver that is not installed: {error}",
            owner=OWNER,
            hint=f'pip install "nlpkernel-plugin-store[{extra}]", or the driver that the message names',
        )

    def _not_opened(self, reason: str) -> NlpkernelError:
        return fail(
            CheckpointError,
            "STO051",
            f"the versions at {self._url} cannot be opened: {reason}",
            owner=OWNER,
            hint="checkpoint.url and checkpoint.options say where they are and how to get there",
        )

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _writing(self, name: str) -> Writer:
        if self._writer is None:
            message = f"{self.kind} is not known to create files conditionally, so nothing is written there"
            raise OSError(errno.ENOTSUP, message, self.describe(name))
        return self._writer

    def _again(self, done: str, name: str, call: Callable[[], _T]) -> _T:
        """The result of a call that may be made again."""
        what = f"{self.describe(name)}: not {done} yet: a call"
        return self._told(done, name, lambda: self._patience(what, call, self._words))

    def _told(self, done: str, name: str, call: Callable[[], _T]) -> _T:
        """The result of a call; what it raises becomes an OSError that names URL and cause."""
        try:
            return call()
        except NlpkernelError:
            raise
        except Exception as error:
            number = error.errno if isinstance(error, OSError) and error.errno is not None else None
            for kind, meant in ((FileNotFoundError, errno.ENOENT), (FileExistsError, errno.EEXIST)):
                if isinstance(error, kind) and code_of(error) != "NoSuchBucket":
                    raise kind(meant, os.strerror(meant), self.describe(name)) from error
            if number is None:
                number = errno.EACCES if isinstance(error, PermissionError) else errno.EIO
            raise OSError(number, f"it is not {done}: {self._words(error)}", self.describe(name)) from error

    def _words(self, error: BaseException) -> str:
        """What an error says, without what the options hold: some drivers repeat what they were given."""
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        for each in self._secrets:
            text = text.replace(each, "***")
        return text
