"""The framing of TFRecord files: length, its checksum, data, its checksum; all little-endian.

Format: https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import google_crc32c

_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")
_DELTA = 0xA282EAD8
_READ = 1 << 20


class Frame(NamedTuple):
    """The data of one record; `sound` tells whether its checksum fits."""

    data: bytes
    sound: bool


class BrokenFrame(Exception):
    """From here on nothing can be read: a length that is none, or a file that ends early."""


def frames(stream: BinaryIO, longest: int) -> Iterator[Frame]:
    """The records of a stream. Raise BrokenFrame where they cannot be told apart any more, or one is longer than
    `longest` bytes."""
    held, at = b"", 0
    while True:
        if len(held) - at < _HEAD.size:
            held, at = _more(stream, held[at:], _HEAD.size), 0
            if not held:
                return
            if len(held) < _HEAD.size:
                raise BrokenFrame("it ends in the middle of a record's length")
        length, sum_ = _HEAD.unpack_from(held, at)
        if masked(held[at : at + 8]) != sum_:
            raise BrokenFrame("the checksum of a record's length does not fit")
        if length > longest:
            raise BrokenFrame(f"a record has {length} bytes, and {longest} are the most")
        at += _HEAD.size
        if len(held) - at < length + _TAIL.size:
            held, at = _more(stream, held[at:], length + _TAIL.size), 0
            if len(held) < length + _TAIL.size:
                raise BrokenFrame("it ends in the middle of a record")
        data = held[at : at + length]
        (sum_,) = _TAIL.unpack_from(held, at + length)
        at += length + _TAIL.size
        yield Frame(data, masked(data) == sum_)


def framed(data: bytes) -> bytes:
    """A record as it stands in a file."""
    length = struct.pack("<Q", len(data))
    return length + _TAIL.pack(masked(length)) + data + _TAIL.pack(masked(data))


def masked(data: bytes) -> int:
    """The CRC-32C of data, rotated and shifted so that it may be computed over data that hold such sums."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _DELTA) & 0xFFFFFFFF


def _more(stream: BinaryIO, held: bytes, size: int) -> bytes:
    """What is held and as much more as it takes to have `size` bytes; less at the end of the file."""
    pieces, have = [held], len(held)
    while have < size and (piece := stream.read(max(_READ, min(size - have, 1 << 24)))):
        pieces.append(piece)
        have += len(piece)
    return b"".join(pieces)
