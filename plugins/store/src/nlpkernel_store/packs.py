"""Packs: safetensors files with the blobs of one worker, which other tools can read. Light: no torch.

The format allows no gaps, so blobs are ordered in such a way that each stands where its type may stand: first those
whose size is a multiple of 64 bytes, then the rest by the size of an element, the largest first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import attrs

from nlpkernel_store.hashing import digest
from nlpkernel_store.manifest import PackSize

FOLDER = "packs/"
_ALIGNED = 64
#: What is written at once, and the size up to which blobs are gathered for that.
_CHUNK, _SMALL = 8 << 20, 1 << 20

#: Types of torch by name: what safetensors calls them, and the bytes of an element.
TYPES: dict[str, tuple[str, int]] = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint64": ("U64", 8),
    "uint32": ("U32", 4),
    "uint16": ("U16", 2),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
    "complex64": ("C64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
    "float4_e2m1fn_x2": ("F4", 1),
}


@attrs.frozen(kw_only=True)
class Piece:
    """Bytes for a pack. dtype, shape: as torch says them. name: under which other tools find them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


@attrs.frozen(kw_only=True)
class Pack:
    """A pack ready to be written. offsets: of each piece in the order in which they came, from the file's start."""

    header: bytes
    pieces: tuple[Piece, ...]
    offsets: tuple[int, ...]
    size: PackSize

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The file, in pieces that are worth a call each."""
        gathered = bytearray(self.header)
        for piece in self.pieces:
            size = piece.data.nbytes
            if size < _SMALL:
                gathered += piece.data
                if len(gathered) < _CHUNK:
                    continue
            if gathered:
                yield bytes(gathered)
                gathered.clear()
            if size >= _SMALL:
                yield from (piece.data[start : start + _CHUNK] for start in range(0, size, _CHUNK))
        if gathered:
            yield bytes(gathered)


def order(sizes: Sequence[tuple[int, int]]) -> list[int]:
    """Indices of blobs, given as bytes and bytes of an element, in the order in which they stand in a pack."""

    def standing(index: int) -> int:
        size, element = sizes[index]
        return -element if size % _ALIGNED else -_ALIGNED

    return sorted(range(len(sizes)), key=standing)


def pack(pieces: Sequence[Piece]) -> Pack:
    """Lay out a pack."""
    sizes = [(piece.data.nbytes, TYPES[piece.dtype][1]) for piece in pieces]
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    starts = [0] * len(pieces)
    ordered = order(sizes)
    position = 0
    for index in ordered:
        piece, size = pieces[index], sizes[index][0]
        starts[index] = position
        table[_free(piece.name, table)] = {
            "dtype": TYPES[piece.dtype][0],
            "shape": _shape(piece),
            "data_offsets": [position, position + size],
        }
        position += size
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNED)
    header = len(text).to_bytes(8, "little") + text
    return Pack(
        header=header,
        pieces=tuple(pieces[index] for index in ordered),
        offsets=tuple(len(header) + start for start in starts),
        size=PackSize(len(header) + position, position, digest(header)),
    )


def _free(name: str, table: dict[str, object]) -> str:
    while name in table:
        name += "'"
    return name


def _shape(piece: Piece) -> list[int]:
    # torch counts pairs of 4-bit numbers, the format counts numbers.
    if piece.dtype == "float4_e2m1fn_x2" and piece.shape:
        return [*piece.shape[:-1], piece.shape[-1] * 2]
    return list(piece.shape)
