"""Plain values to bytes and back, exactly: what comes out is equal, of the same types and in the same order.

msgpack alone would return tuples as lists, refuse integers beyond 64 bits and dictionaries with tuples for
keys, and accept subclasses. So every container is an array that begins with a tag, large integers travel as
an extension type, and every other type than the listed ones is refused by name.
"""

from __future__ import annotations

import itertools
from types import NoneType
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

from nlpkernel.errors import CheckpointError, fail
from nlpkernel_store.codes import OWNER

_LIST, _TUPLE, _DICT = range(3)
_INTEGER = 1
#: Levels of containers in containers; msgpack itself ends at 511.
_DEPTH = 200

#: A position in a value: its parent's position and the key or index there. It becomes text only for an error.
_Trail = tuple[Any, Any]


def encode(value: Any, name: str) -> bytes:
    """The bytes of a plain value: None, bool, int of any size, float, str, bytes, list, dict, tuple, nested.

    Raise CheckpointError (STO001) for anything else, naming its place in `name`.
    """
    wrapped = _wrap(value, (None, name), 0)
    return msgpack.packb(wrapped, strict_types=True, unicode_errors="surrogatepass")  # type: ignore[no-any-return]


def decode(data: bytes) -> Any:
    """The value that `encode` got. Raise ValueError or TypeError where the bytes are none of ours."""
    return _unwrap(msgpack.unpackb(data, ext_hook=_integer, unicode_errors="surrogatepass"))


def refuse(name: str, why: str, code: str = "STO001") -> CheckpointError:
    """The error for a value that cannot be stored."""
    return fail(CheckpointError, code, f"{name} cannot be stored: {why}", owner=OWNER)  # type: ignore[return-value]


def _wrap(value: Any, trail: _Trail, depth: int) -> Any:
    kind = type(value)
    if kind in (NoneType, bool, float, str, bytes):
        return value
    if kind is int:
        if -(2**63) <= value < 2**64:
            return value
        return msgpack.ExtType(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if depth == _DEPTH:
        raise refuse(_name(trail), f"it is nested deeper than {_DEPTH} levels")
    if kind is list or kind is tuple:
        items = [_wrap(item, (trail, index), depth + 1) for index, item in enumerate(value)]
        return [_TUPLE if kind is tuple else _LIST, *items]
    if kind is dict:
        pairs = [
            (_wrap(key, (trail, key), depth + 1), _wrap(value[key], (trail, key), depth + 1)) for key in value
        ]
        return [_DICT, *itertools.chain.from_iterable(pairs)]
    raise refuse(_name(trail), f"it is of type {kind.__module__}.{kind.__qualname__}")


def _unwrap(value: Any) -> Any:
    if type(value) is not list:
        return value
    if not value:
        raise ValueError("a container without a tag")
    tag, *items = value
    items = [_unwrap(item) if type(item) is list else item for item in items]
    if tag == _LIST:
        return items
    if tag == _TUPLE:
        return tuple(items)
    if tag == _DICT:
        return dict(zip(items[::2], items[1::2], strict=True))
    raise ValueError(f"unknown tag {tag!r}")


def _integer(code: int, data: bytes) -> int:
    if code != _INTEGER:
        raise ValueError(f"unknown extension type {code}")
    return int.from_bytes(data, "big", signed=True)


def _name(trail: _Trail) -> str:
    keys = []
    while trail[0] is not None:
        trail, key = trail
        keys.append(f"[{key!r}]")
    return f"{trail[1]}{''.join(reversed(keys))}"
