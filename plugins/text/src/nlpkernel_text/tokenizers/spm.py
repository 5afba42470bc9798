"""The bytes of a SentencePiece model: what it is, and additions to it.

A model is a protocol buffer (sentencepiece_model.proto): pieces in field 1, the trainer's facts in field 2, the
normaliser's in field 3. What is appended to a protocol buffer adds to a repeated field and overrides a single one, so a
model with more pieces, or with another end, is the old one with a few bytes after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

#: Types of pieces.
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_END, _PAD = 47, 48
_VARINT, _EIGHT, _COUNTED, _FOUR = 0, 1, 2, 5


@attrs.frozen
class Model:
    """What a model consists of. pieces: names and types by id. keeps: whether the bytes of the pieces are the bytes of
    the text, of every text."""

    pieces: tuple[tuple[str, int], ...]
    keeps: bool


def read_model(content: bytes) -> Model | None:
    """What a model consists of; None where the bytes are no model."""
    pieces: list[tuple[str, int]] = []
    trainer = False
    normalizer: dict[int, Any] = {}
    try:
        for field, value in _fields(content):
            if field == _PIECE:
                facts = dict(_fields(value))
                pieces.append((facts[1].decode("utf-8"), facts.get(3, NORMAL)))
            elif field == _TRAINER:
                trainer = trainer or isinstance(value, bytes)
            elif field == _NORMALIZER:
                normalizer.update(_fields(value))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not pieces or not trainer:
        return None
    return Model(tuple(pieces), _keeps(pieces, normalizer))


def _keeps(pieces: list[tuple[str, int]], normalizer: Mapping[int, Any]) -> bool:
    # Fields 2 to 5: the table of replacements, a space put before a text, spaces taken away, spaces made visible.
    plain = not normalizer.get(2) and normalizer.get(3, 1) == 0 and normalizer.get(4, 1) == 0
    return plain and sum(kind == BYTE for _, kind in pieces) == 256 and normalizer.get(5, 1) == 1


def added(content: bytes, pieces: Mapping[str, int], *, end: str | None, pad: str | None) -> bytes:
    """The model with more pieces, name to type, and another end and padding where they are given ("" for none)."""
    for name, kind in pieces.items():
        score = _key(2, _FOUR) + struct.pack("<f", 0.0)
        content += _counted(_PIECE, _counted(1, name.encode()) + score + _key(3, _VARINT) + _varint(kind))
    for field, token in ((_END, end), (_PAD, pad)):
        if token is not None:
            # An empty name would mean the default, which may be a piece; this one is none.
            content += _counted(_TRAINER, _counted(field, token.encode() or b"\0"))
    return content


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a message with their values: a number, or bytes. Raise ValueError where it is none."""
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        field, kind = key >> 3, key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _read_varint(content, at)
        elif kind in (_EIGHT, _FOUR, _COUNTED):
            size = {_EIGHT: 8, _FOUR: 4}.get(kind)
            if size is None:
                size, at = _read_varint(content, at)
            value, at = content[at : at + size], at + size
        else:
            raise ValueError(f"a field of kind {kind}")
        if field == 0 or at > len(content):
            raise ValueError("a message that ends too early")
        yield field, value


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at >= len(content):
            raise ValueError("a message that ends too early")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at
    raise ValueError("a number that does not end")


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _counted(field: int, content: bytes) -> bytes:
    return _key(field, _COUNTED) + _varint(len(content)) + content
