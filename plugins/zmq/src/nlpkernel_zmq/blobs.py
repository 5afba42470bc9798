"""Named tensors and plain facts as one row of bytes: what a snapshot holds, and how state travels.

8 bytes  length of the head, little-endian
head     msgpack: {"facts": ..., "tensors": [[name, dtype, shape, at, bytes], ...]}
body     the tensors, each at `at` bytes after the head, at a multiple of 64
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from nlpkernel_zmq.layout import ALIGN
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import buffer_of, dtype_of, name_of, view_of

_LENGTH = struct.Struct("<Q")


def pack(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytearray:
    """All of it, copied."""
    table: list[list[Any]] = []
    sizes: list[tuple[int, int]] = []
    at = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.itemsize
        table.append([name, name_of(tensor.dtype), list(tensor.shape), at, size])
        sizes.append((at, size))
        at += -(-size // ALIGN) * ALIGN
    head = msgpack.packb({"facts": facts, "tensors": table})
    start = _LENGTH.size + len(head)
    made = bytearray(start + at)
    _LENGTH.pack_into(made, 0, len(head))
    made[_LENGTH.size : start] = head
    body = memoryview(made)[start:]
    for (place, size), tensor in zip(sizes, tensors.values(), strict=True):
        body[place : place + size] = buffer_of(tensor)
    return made


def unpack(data: bytes | bytearray | memoryview) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts, and the tensors, copied out of the row. Raise BadFrame where it is none."""
    view = memoryview(data)
    try:
        (length,) = _LENGTH.unpack_from(view)
        if length > view.nbytes - _LENGTH.size:
            raise BadFrame("truncated", "the head is longer than the row")
        start = _LENGTH.size + length
        head = msgpack.unpackb(view[_LENGTH.size : start], strict_map_key=False)
        body, made = view[start:], {}
        for name, dtype, shape, at, size in head["tensors"]:
            kind = dtype_of(dtype)
            flat = view_of(body[at : at + size], kind, size // kind.itemsize)
            made[name] = flat.clone().reshape(shape)
        return dict(head["facts"]), made
    except BadFrame:
        raise
    except (struct.error, ValueError, TypeError, KeyError, RuntimeError, msgpack.UnpackException) as error:
        raise BadFrame("header", f"no tensors in a row: {error}") from error
