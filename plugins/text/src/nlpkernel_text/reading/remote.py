"""Files at URLs, through fsspec: listed, and read again from where a connection broke."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeVar, cast

from nlpkernel.errors import DataError, NlpkernelError, fail
from nlpkernel_text.reading.pulled import Pulled
from nlpkernel_text.reading.urls import hidden, is_pattern, public

_T = TypeVar("_T")

#: What brings the drivers that are not part of fsspec, by protocol.
_EXTRAS = {"s3": "s3", "s3a": "s3", "http": "http", "https": "http"}
#: Calls until a failure that passes counts as one that does not, and seconds before the second of them; each further
#: wait is twice as long.
TRIES = 5
WAIT = 0.25
#: Failures that a second call does not mend.
_LASTING = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    io.UnsupportedOperation,
    NotImplementedError,
    LookupError,
    TypeError,
    ValueError,
)
#: What tells one content of a remote file from another, as drivers call it.
_MARKS = ("ETag", "etag", "md5Hash", "content_md5", "crc32c", "generation", "version_id", "VersionId")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "Last-Modified", "created")


class Remote:
    """The file system that a URL names, with a driver's options. It is opened when it is first used, in each process
    by itself, so that it may be sent to another. Messages show neither what the options hold nor users and queries of
    URLs.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url, self._options = url, dict(options)
        self._secrets = sorted(set(hidden(url, options)), key=len, reverse=True)
        self._system: Any = None
        self._process = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_system": None}

    def __repr__(self) -> str:
        return f"Remote({public(self._url)!r})"

    def find(self) -> list[str] | None:
        """URLs of the files that the URL means, by name: itself, those in it and below, or those that fit the
        pattern. None where nothing is there."""
        return self._asked(self._url, "listed", self._find)

    def facts(self, url: str) -> dict[str, Any]:
        """What the driver tells of a file. "size" may be missing or None."""

        def info() -> dict[str, Any]:
            facts: dict[str, Any] = self._opened().info(self._path(url))
            return facts

        return self._asked(url, "found", info)

    def stamp(self, url: str) -> tuple[str, ...]:
        """What is known of a file's content without reading it: checksums, else the time of its change; and its
        size."""
        facts = self.facts(url)
        marks = [f"{name}={facts[name]}" for name in _MARKS if facts.get(name)]
        marks = marks or [f"{name}={facts[name]}" for name in _TIMES if facts.get(name)]
        return (*marks, f"size={facts.get('size')}")

    def open(self, url: str) -> BinaryIO:
        """A stream of a file's bytes, which seeks where the driver can. What fails while it is read is tried
        again."""
        return cast(BinaryIO, _Lasting(self, url))

    def open_once(self, url: str) -> BinaryIO:
        """The driver's own stream."""
        stream: BinaryIO = self._opened().open(self._path(url), "rb")
        return stream

    def again(self, url: str, done: str, call: Callable[[], _T]) -> _T:
        """The result of a call, made up to TRIES times. Raise DataError (TXT020) that says what failed last."""
        for number in range(TRIES):
            try:
                return call()
            except NlpkernelError:
                raise
            except Exception as error:
                if number + 1 == TRIES or not _passes(error):
                    raise self._failed(url, done, error) from error
            time.sleep(WAIT * 2**number)
        raise AssertionError("the last try returns or raises")

    def _asked(self, url: str, done: str, call: Callable[[], _T]) -> _T:
        self._opened()
        return self.again(url, done, call)

    def _find(self) -> list[str] | None:
        system, path = self._opened(), self._path(self._url)
        if is_pattern(self._url):
            found = [name for name, facts in system.glob(path, detail=True).items() if _is_file(facts)]
        elif not system.exists(path):
            return None
        elif system.isdir(path) and not system.isfile(path):
            found = [name for name, facts in system.find(path, detail=True).items() if _is_file(facts)]
            below = len(path.rstrip("/")) + 1
            found = [name for name in found if not any(p.startswith(".") for p in name[below:].split("/"))]
        else:
            return [self._url]
        return [system.unstrip_protocol(name) for name in sorted(found)]

    def _path(self, url: str) -> str:
        path: str = self._opened()._strip_protocol(url)
        return path

    def _opened(self) -> Any:
        # Drivers have threads, which a forked process does not.
        if self._system is None or self._process != os.getpid():
            self._system, self._process = self._open(), os.getpid()
        return self._system

    def _open(self) -> Any:
        protocol = self._url.partition("://")[0].lower()
        try:
            import fsspec  # type: ignore[import-untyped]

            kind = fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            extra = _EXTRAS.get(protocol, "remote")
            raise fail(
                DataError,
                "TXT025",
                f"{public(self._url)} needs a driver that is not installed: {error}",
                hint=f'pip install "nlpkernel-plugin-text[{extra}]", or the driver that the message names',
            ) from error
        except ValueError as error:
            raise self._not_taken(error) from error
        if "::" in self._url:
            raise self._not_taken(ValueError("chained URLs are not taken"))
        try:
            options = {**kind._get_kwargs_from_urls(self._url), **self._options}
            # One of our own: what fsspec shares between callers remembers listings and other people's options.
            return kind(**options, skip_instance_cache=True, use_listings_cache=False)
        except Exception as error:
            raise self._not_taken(error) from error

    def _not_taken(self, error: Exception) -> NlpkernelError:
        return fail(
            DataError,
            "TXT025",
            f"{public(self._url)} cannot be opened: {self._words(error)}",
            hint="the URL says where the files are, and `storage` how to get there",
        )

    def _failed(self, url: str, done: str, error: Exception) -> NlpkernelError:
        return fail(
            DataError, "TXT020", f"{public(url)} is not {done}: {self._words(error)}", hint=_advice(error)
        )

    def _words(self, error: BaseException) -> str:
        """What an error says, without what is secret: some drivers repeat what they were given."""
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        if error.__cause__ is not None:
            text += f" ({error.__cause__})"
        for each in self._secrets:
            text = text.replace(each, "***")
        return text


class _Lasting(Pulled):
    """The bytes of a remote file. Where a connection breaks, it goes on with another from the same place."""

    def __init__(self, remote: Remote, url: str) -> None:
        super().__init__()
        self._remote, self._url = remote, url
        self._at = 0
        self._stream: BinaryIO | None = remote.again(url, "opened", lambda: remote.open_once(url))
        self._seeks = self._stream.seekable()

    def pull(self, size: int) -> bytes:
        """The next bytes."""
        data = self._remote.again(self._url, "read", lambda: self._once(size))
        self._at += len(data)
        return data

    def seekable(self) -> bool:
        """Whether the driver can read parts of files."""
        return self._seeks

    def tell(self) -> int:
        """The number of bytes before the next one that is read."""
        return self._at - len(self._held)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go on elsewhere in the file."""
        if whence == io.SEEK_CUR:
            offset += self.tell()
        stream = self._remote.again(self._url, "opened", self._again)
        self._at = stream.seek(offset, io.SEEK_END if whence == io.SEEK_END else io.SEEK_SET)
        self._held, self._failed = b"", None
        return self._at

    def close(self) -> None:
        """Close the connection too."""
        if not self.closed and self._stream is not None:
            self._stream.close()
        super().close()

    def _once(self, size: int) -> bytes:
        stream = self._again()
        try:
            data = stream.read(size)
        except Exception:
            # The next try opens the file again.
            self._stream = None
            raise
        return data

    def _again(self) -> BinaryIO:
        if self._stream is None:
            stream = self._remote.open_once(self._url)
            if self._seeks:
                stream.seek(self._at)
            else:
                left = self._at
                while left and (data := stream.read(min(left, 1 << 20))):
                    left -= len(data)
            self._stream = stream
        return self._stream


def _is_file(facts: Mapping[str, Any]) -> bool:
    return facts.get("type") == "file" and not str(facts.get("name", "")).endswith("/")


def _passes(error: Exception) -> bool:
    """Whether the same call may go well later."""
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500:
        return status in (408, 425, 429)
    return not isinstance(error, _LASTING)


def _advice(error: Exception) -> str | None:
    if isinstance(error, FileNotFoundError):
        return None
    if isinstance(error, PermissionError) or getattr(error, "status", None) in (401, 403):
        return "credentials go into `storage`, or into the environment that the driver reads"
    return None
