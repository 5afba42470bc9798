"""A frame: twelve bytes of preamble and a msgpack map. The only place that reads what a stranger may have sent.

`decode` meets any bytes with an answer or with `BadFrame`. The map is walked once without building anything, so
that a list which claims more items than there are bytes is refused before memory is taken for it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgpack  # type: ignore[import-untyped, unused-ignore]

MAGIC: Final = b"NLPK"
"""The first four bytes of every frame."""

MAJOR: Final = 1
"""The version of the protocol. Frames of another one are refused unread."""

LARGEST_HEADER: Final = 65_536
"""Bytes of the msgpack map of an ordinary frame, at most."""

_PREAMBLE: Final = struct.Struct("<4sBBHI")
PREAMBLE: Final = _PREAMBLE.size
"""Bytes of the preamble: magic, major u8, kind u8, flags u16, length of the header u32; little-endian."""


class BadFrame(ValueError):
    """Bytes, or a message, that the protocol does not allow.

    `code` is one of `magic`, `version`, `truncated`, `too-big`, `header`, `kind`, `field`; `reason` is for people.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


def encode(kind: int, header: Mapping[str, Any], *, limit: int = LARGEST_HEADER) -> bytes:
    """The frame of a header, whose map takes at most `limit` bytes."""
    if not 0 <= kind <= 255:
        raise BadFrame("kind", f"the kind {kind} does not fit into a byte")
    try:
        packed: bytes = msgpack.packb(dict(header), use_bin_type=True)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadFrame("header", f"the header cannot be packed: {error}") from error
    if len(packed) > limit:
        raise BadFrame("too-big", f"the header takes {len(packed)} bytes, more than {limit}")
    return _PREAMBLE.pack(MAGIC, MAJOR, kind, 0, len(packed)) + packed


def decode(frame: bytes | memoryview, *, limit: int = LARGEST_HEADER) -> tuple[int, dict[str, Any]]:
    """The kind and the header of a frame, whose map may take up to `limit` bytes. Raises `BadFrame` only."""
    size = memoryview(frame).nbytes
    data = bytes(frame) if size <= PREAMBLE + limit else bytes(memoryview(frame)[:PREAMBLE])
    if not MAGIC.startswith(data[:4]) or not data:
        raise BadFrame("magic" if data else "truncated", f"it does not begin with {MAGIC.decode()}")
    if len(data) < PREAMBLE:
        raise BadFrame("truncated", f"{size} bytes are less than a preamble")
    _, major, kind, flags, length = _PREAMBLE.unpack_from(data)
    if major != MAJOR:
        raise BadFrame("version", f"version {major} of the protocol, and this is version {MAJOR}")
    if flags:
        raise BadFrame("version", f"flags {flags:#06x}, of which version {MAJOR} knows none")
    if length > limit or size > PREAMBLE + limit:
        raise BadFrame("too-big", f"a header of {max(length, size - PREAMBLE)} bytes, more than {limit}")
    if size != PREAMBLE + length:
        code = "truncated" if size < PREAMBLE + length else "header"
        raise BadFrame(code, f"{size - PREAMBLE} bytes follow the preamble, which announces {length}")
    return kind, _header(data[PREAMBLE:])


def _header(packed: bytes) -> dict[str, Any]:
    size = len(packed)
    try:
        # Walks the bytes and builds nothing: afterwards every claimed length is known to be there.
        walk = msgpack.Unpacker(max_buffer_size=max(size, 1), read_size=max(size, 1))
        walk.feed(packed)
        walk.skip()
        if walk.tell() != size:
            raise BadFrame("header", f"{size - walk.tell()} bytes follow the map")
        header = msgpack.unpackb(
            packed,
            raw=False,
            strict_map_key=True,
            ext_hook=_no_extension,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=size,
            max_map_len=size,
            max_ext_len=0,
        )
    except BadFrame:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        # `msgpack` words its errors by what it was doing; an empty one means that bytes are missing.
        raise BadFrame("header", str(error) or "the map ends too early") from error
    if type(header) is not dict:
        raise BadFrame("header", f"the header is a {type(header).__name__}, not a map")
    if not all(type(key) is str for key in header):
        raise BadFrame("header", "a key of the header is not text")
    return header


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise BadFrame("header", f"msgpack's extension type {code} is not allowed")
