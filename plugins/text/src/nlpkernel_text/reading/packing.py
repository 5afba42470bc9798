"""Packed files as streams: gzip, bzip2, xz, zstd; several members or frames one after the other are read as one."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, cast

from nlpkernel.errors import DataError, Place, fail
from nlpkernel_text.reading.faults import Damaged
from nlpkernel_text.reading.pulled import Pulled

#: Bytes of the packed file that are read at once, and the most that are unpacked at once.
READ = 1 << 18
UNPACK = 1 << 20

#: How each packing begins.
_MAGIC = {
    "gzip": (b"\x1f\x8b",),
    "bzip2": (b"BZh",),
    "xz": (b"\xfd7zXZ\x00",),
    # The last four bits of a skippable frame's magic number are its writer's own.
    "zstd": (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + low, 0x2A, 0x4D, 0x18)) for low in range(16))),
}
#: Zeros after the last member of these are padding, as tape and block devices leave it.
_PADDED = ("gzip", "xz")


class _Decompressor(Protocol):
    """What bz2, lzma and zstd have in common; zlib is fitted to it."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """One member of a gzip file. zlib itself checks length and CRC-32 at its end."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    eof = property(lambda self: self._zlib.eof)
    unused_data = property(lambda self: self._zlib.unused_data)
    needs_input = property(lambda self: not self._zlib.unconsumed_tail)

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        tail = self._zlib.unconsumed_tail
        return self._zlib.decompress(tail + data if tail else data, max_length)


def unpack(stream: BinaryIO, packing: str, shown: str) -> BinaryIO:
    """A stream of what a packed stream holds. It cannot seek. Reading raises Damaged where the file ends early, fails
    its own checks, or is not packed at all, and gives what comes before that first.

    Raise DataError (TXT026) where the library for `packing` is not there."""
    return cast(BinaryIO, _Unpacked(stream, packing, shown))


def packer(stream: BinaryIO, packing: str, shown: str) -> BinaryIO:
    """A stream that packs what is written to it into another, which it leaves open. The same content gives the same
    bytes.

    Raise DataError (TXT026) where the library for `packing` is not there."""
    made: Any
    if packing == "gzip":
        made = gzip.GzipFile("", "wb", fileobj=stream, mtime=0)
    elif packing == "bzip2":
        made = bz2.BZ2File(stream, "wb")
    elif packing == "xz":
        made = lzma.LZMAFile(stream, "wb")  # noqa: SIM115 -- whoever asked closes it
    else:
        made = _zstd(shown).ZstdFile(stream, mode="wb")
    return cast(BinaryIO, made)


def _maker(packing: str, shown: str) -> Callable[[], _Decompressor]:
    makers: dict[str, Any] = {"gzip": _Gzip, "bzip2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}
    maker: Callable[[], _Decompressor] = makers.get(packing) or _zstd(shown).ZstdDecompressor
    return maker


def _zstd(shown: str) -> Any:
    """Python's module of zstd, which it has from 3.14 on; for older ones it is a distribution of its own."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            missing = error
    raise fail(
        DataError,
        "TXT026",
        f"{shown} is packed with zstd, and this Python has no module for that",
        hint='pip install "nlpkernel-plugin-text[zstd]"',
    ) from missing


class _Unpacked(Pulled):
    """The content of a packed stream. It keeps no more than READ + UNPACK bytes, whatever the ratio."""

    def __init__(self, stream: BinaryIO, packing: str, shown: str) -> None:
        super().__init__()
        self._stream, self._packing, self._shown = stream, packing, shown
        self._make = _maker(packing, shown)
        self._one: _Decompressor | None = None
        #: Bytes read and not yet given to a decompressor; how many were read and given out so far.
        self._data = b""
        self._read = self._given = 0
        self._members = 0

    def pull(self, size: int) -> bytes:
        """Some of the content."""
        while self._one is not None or self._begin():
            if found := self._some(min(size, UNPACK)):
                self._given += len(found)
                return found
        return b""

    def close(self) -> None:
        """Close the packed stream too."""
        if not self.closed:
            self._stream.close()
        super().close()

    def _some(self, size: int) -> bytes:
        """Some of the content of a member, perhaps nothing."""
        one = self._one
        assert one is not None
        data, last = b"", False
        if one.needs_input:
            data, self._data = self._data or self._more(), b""
            last = not data
        try:
            found = one.decompress(data, size)
        except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError) as error:
            raise self._damaged(str(error)) from error
        except Exception as error:
            # compression.zstd has an error of its own, derived from Exception.
            if type(error).__name__ != "ZstdError":
                raise
            raise self._damaged(str(error)) from error
        if one.eof:
            self._data, self._one = one.unused_data + self._data, None
        elif last and not found:
            raise self._damaged(f"the file ends in the middle of its {self._packing} data")
        return found

    def _begin(self) -> bool:
        """Begin with the next member; tell whether there is one."""
        while len(self._data) < 8 and (more := self._more()):
            self._data += more
        if self._members and self._packing in _PADDED:
            while self._data[:1] == b"\0":
                self._data = self._data.lstrip(b"\0") or self._more()
        if not self._data:
            if not self._members and not self._read:
                raise self._unlike("it is empty")
            return False
        if not self._data.startswith(_MAGIC[self._packing]):
            if self._members:
                raise self._damaged(f"what follows the end of the {self._packing} data is no {self._packing}")
            raise self._unlike(f"it begins with the bytes {self._data[:4].hex(' ')}")
        self._one = self._make()
        self._members += 1
        return True

    def _more(self) -> bytes:
        data = self._stream.read(READ)
        self._read += len(data)
        return data

    def _unlike(self, what: str) -> Damaged:
        return Damaged.of(
            "files that are not packed as their names say",
            "TXT022",
            f"the file is no {self._packing} file, as its name says: {what}",
            Place(self._shown),
            "rename the file, or pack it",
        )

    def _damaged(self, what: str) -> Damaged:
        near = self._read - len(self._data)
        return Damaged.of(
            "damaged files",
            "TXT021",
            f"the packed file is damaged near its byte {near}, after {self._given} bytes of content: {what}",
            Place(self._shown),
            'get the file again, or write on_error = "skip" to keep what comes before the damage',
        )
