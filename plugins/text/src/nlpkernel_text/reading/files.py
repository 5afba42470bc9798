"""Files of the data: where they are, and how they become a stream of what they hold."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import attrs

from nlpkernel.errors import DataError, Place, fail
from nlpkernel_text.reading.encoding import known, marked, transcode
from nlpkernel_text.reading.packing import unpack
from nlpkernel_text.reading.pulled import Pulled
from nlpkernel_text.reading.remote import Remote
from nlpkernel_text.reading.suffixes import unpacked

#: What identifies the content of a file without reading it.
Stamp = tuple[Any, ...]


@attrs.define(eq=False)
class File:
    """One file of the data; a `Source` for readers. It may be sent to another process.

    where: its path, or its URL. shown: how messages call it. format: the name of the reader for it. packing: "gzip",
    "bzip2", "xz" or "zstd", by the end of its name; None where it is not packed. encoding: what its text is in: a
    codec of Python's; "auto" to find it out; None where its bytes are given as they are, for formats that are no
    text. remote: the file system of a URL. binary: columns that may be no text.
    """

    where: str
    shown: str
    format: str
    packing: str | None = None
    encoding: str | None = "utf-8"
    remote: Remote | None = attrs.field(default=None, repr=False)
    binary: frozenset[str] = frozenset()
    _found: str | None = attrs.field(default=None, init=False, repr=False)

    @classmethod
    def at(
        cls,
        where: Path | str,
        format: str,
        *,
        shown: str | None = None,
        encoding: str | None = "utf-8",
        storage: Mapping[str, Any] | None = None,
    ) -> File:
        """The file at a path or URL; `storage` are options of the URL's driver. How it is packed is told by its
        name."""
        from nlpkernel_text.reading.finding import local_path, show

        path = local_path(where)
        packing = unpacked(path.name if isinstance(path, Path) else path.partition("?")[0])[1]
        if isinstance(path, Path):
            return cls(str(path), shown or show(path), format, packing, encoding)
        remote = Remote(path, storage or {})
        return cls(path, shown or show(path), format, packing, encoding, remote)

    @property
    def path(self) -> Path:
        """Where it lies on this machine. Raise ValueError for a remote one."""
        if self.remote is not None:
            raise ValueError(f"{self.shown} is not on this machine")
        return Path(self.where)

    @property
    def identity(self) -> str:
        """What two names of the same file have in common: where it lies, without links; the URL of a remote one."""
        return os.path.realpath(self.where) if self.remote is None else self.where

    @property
    def local(self) -> Path | None:
        """See Source."""
        if self.remote is not None or self.packing is not None:
            return None
        return self.path if self.encoding is None or self.read_as() == "utf-8" else None

    def open(self) -> BinaryIO:
        """See Source."""
        if self.encoding is None:
            return self.open_bytes()
        encoding = self.read_as()
        stream = self.open_bytes()
        return stream if encoding == "utf-8" else transcode(stream, encoding, self.shown)

    def open_bytes(self) -> BinaryIO:
        """Its content as bytes, unpacked and not decoded."""
        stream = self.open_raw()
        if self.packing is None:
            return stream
        try:
            return unpack(stream, self.packing, self.shown)
        except BaseException:
            stream.close()
            raise

    def open_raw(self) -> BinaryIO:
        """Its own bytes, as they lie on disk."""
        if self.remote is not None:
            return self.remote.open(self.where)
        try:
            # Without a buffer: what reads it takes large blocks.
            return cast(BinaryIO, _Raw(self.where, self.shown))
        except OSError as error:
            raise _unreadable(self.shown, error) from error

    def read_as(self) -> str:
        """The encoding that it is read in: that of its byte-order mark where the plan says UTF-8 or "auto", else what
        the plan says. Raise Damaged where "auto" finds none."""
        if self._found is None:
            self._found = self._encoding()
        return self._found

    def as_bytes(self) -> File:
        """This file for a reader of a format that is no text."""
        return self if self.encoding is None else attrs.evolve(self, encoding=None)

    def size(self) -> int:
        """Its own bytes, packed as they are; 0 where a remote server does not tell."""
        if self.remote is not None:
            return int(self.remote.facts(self.where).get("size") or 0)
        return self._stat()[0]

    def stamp(self) -> Stamp:
        """What changes when it is written to: size and time, or what a remote server tells of its content."""
        return self.remote.stamp(self.where) if self.remote is not None else self._stat()

    def digest(self, advance: Callable[[int], object] = lambda size: None) -> str:
        """A hash of its content for the key of a cache. A remote file is not read for this: it stands for its URL and
        stamp. `advance` is told of bytes that are hashed."""
        found = hashlib.sha256()
        if self.remote is not None:
            found.update(repr((self.where, self.stamp())).encode())
            return found.hexdigest()
        buffer = memoryview(bytearray(1 << 20))
        with self.open_raw() as stream:
            while size := cast(io.RawIOBase, stream).readinto(buffer):
                found.update(buffer[:size])
                advance(size)
        return found.hexdigest()

    def _stat(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except OSError as error:
            raise _unreadable(self.shown, error) from error
        return status.st_size, status.st_mtime_ns

    def _encoding(self) -> str:
        if self.encoding is None:
            return ""
        if self.encoding == "auto":
            from nlpkernel_text.reading.detecting import detect

            return detect(self.open_bytes, self.shown)
        name = known(self.encoding)
        if name is None:
            raise fail(
                DataError,
                "TXT023",
                f"there is no encoding {self.encoding!r}",
                place=Place(self.shown),
                hint="write the name of one of Python's codecs, such as latin-1, cp1252 or utf-16",
            )
        if name not in ("utf-8", "utf-8-sig"):
            return name
        with self.open_bytes() as stream:
            head = stream.peek(4)[:4] if isinstance(stream, Pulled) else stream.read(4)
        return marked(head) or "utf-8"


class _Raw(io.FileIO):
    """A file on this machine. A disk that fails while it is read is an error of the data."""

    def __init__(self, path: str, shown: str) -> None:
        super().__init__(path, "rb")
        self._shown = shown

    def read(self, size: int | None = -1, /) -> bytes:
        """As any file's."""
        try:
            return super().read(-1 if size is None else size) or b""
        except OSError as error:
            raise _unreadable(self._shown, error) from error


def _unreadable(shown: str, error: OSError) -> Exception:
    return fail(
        DataError, "TXT020", f"the file cannot be read: {error.strerror or error}", place=Place(shown)
    )
