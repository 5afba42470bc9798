"""`tf.train.Example` to and from bytes: the few parts of Protocol Buffers that it needs.

Messages: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto. Encoding:
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

Feature = list[bytes] | list[float] | list[int]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST = 1 << 64


def decode(data: bytes, wanted: Collection[str] | None = None) -> dict[str, Feature | None]:
    """The features of an Example, by name: those in `wanted` with their values, and of others the name alone (None);
    all with their values where `wanted` is None. Raise ValueError for what is no Example."""
    found: dict[str, Feature | None] = {}
    for number, kind, features in _fields(data, 0, len(data)):
        if number == 1 and kind == _BYTES:
            for inner, inner_kind, entry in _fields(data, *features):
                if inner == 1 and inner_kind == _BYTES:
                    name, value = _entry(data, *entry)
                    found[name] = _feature(data, *value) if wanted is None or name in wanted else None
    return found


def encode(features: Mapping[str, Sequence[Any]]) -> bytes:
    """An Example: each feature's values are all bytes or text, all whole numbers, or all numbers. Raise ValueError or
    TypeError for others."""
    entries = (_part(1, _part(1, name.encode()) + _part(2, _value(v))) for name, v in features.items())
    return _part(1, b"".join(entries))


def _entry(data: bytes, start: int, end: int) -> tuple[str, tuple[int, int]]:
    name, value = "", (start, start)
    for number, kind, span in _fields(data, start, end):
        if kind == _BYTES and number == 1:
            name = data[span[0] : span[1]].decode("utf-8")
        elif kind == _BYTES and number == 2:
            value = span
    return name, value


def _feature(data: bytes, start: int, end: int) -> Feature:
    """The values of a Feature. It is one of three lists: of several kinds the last counts, and those of one are one."""
    values: list[Any] = []
    before = 0
    for number, kind, span in _fields(data, start, end):
        if kind == _BYTES and number in (1, 2, 3):
            found: list[Any] = list((_texts, _floats, _numbers)[number - 1](data, *span))
            values = values + found if number == before else found
            before = number
    return values


def _texts(data: bytes, start: int, end: int) -> list[bytes]:
    return [data[a:b] for number, kind, (a, b) in _fields(data, start, end) if number == 1 and kind == _BYTES]


def _floats(data: bytes, start: int, end: int) -> list[float]:
    values: list[float] = []
    for number, kind, (a, b) in _fields(data, start, end):
        if number == 1 and kind in (_BYTES, _FIXED32):
            if (b - a) % 4:
                raise ValueError("a list of floats has a part of one")
            values += struct.unpack_from(f"<{(b - a) // 4}f", data, a)
    return values


def _numbers(data: bytes, start: int, end: int) -> list[int]:
    values: list[int] = []
    for number, kind, (a, b) in _fields(data, start, end):
        if number == 1 and kind in (_BYTES, _VARINT):
            while a < b:
                value, a = _varint(data, a, b)
                values.append(value - _MOST if value >> 63 else value)
    return values


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """The fields of a message: number, kind, and where its content is. Those of kinds that nobody writes any more
    (groups) are refused."""
    at = start
    while at < end:
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        begin = at
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        elif kind == _BYTES:
            length, begin = _varint(data, at, end)
            at = begin + length
        else:
            raise ValueError(f"a field is of the kind {kind}")
        if at > end:
            raise ValueError("a field goes on after the end of its message")
        yield number, kind, (begin, at)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end:
            raise ValueError("a number goes on after the end of its message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (_MOST - 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than ten bytes")


def _value(values: Sequence[Any]) -> bytes:
    if any(isinstance(value, (str, bytes)) for value in values):
        return _part(1, b"".join(_part(1, v.encode() if isinstance(v, str) else v) for v in values))
    if all(isinstance(value, int) for value in values):
        return _part(3, _part(1, b"".join(_written(_unsigned(value)) for value in values)))
    return _part(2, _part(1, struct.pack(f"<{len(values)}f", *values)))


def _unsigned(value: int) -> int:
    if not -(_MOST >> 1) <= value < _MOST >> 1:
        raise ValueError(f"{value} does not fit into 64 bits")
    return value % _MOST


def _part(number: int, content: bytes) -> bytes:
    return _written(number << 3 | _BYTES) + _written(len(content)) + content


def _written(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
