"""What the entries of byte-level tokenizers stand for (the alphabet of Radford et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tokenizers import AddedToken


@cache
def alphabet() -> Mapping[str, int]:
    """The character that stands for each byte: printable bytes for themselves, the others from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [number for number in range(256) if number not in set(plain)]
    return {chr(number): number for number in plain} | {
        chr(0x100 + place): number for place, number in enumerate(others)
    }


def byte_pieces(
    values: Mapping[str, Any],
    entries: Mapping[str, int],
    added: Mapping[int, AddedToken],
    vocabulary: int,
) -> Sequence[bytes] | None:
    """The bytes that each id stands for, control tokens for none; None where ids are no bytes. `values` is the
    tokenizer.json."""
    decoder, model = values.get("decoder") or {}, values["model"]
    parts = decoder.get("decoders", [decoder])
    if [part.get("type") for part in parts] != ["ByteLevel"]:
        return None
    if model.get("end_of_word_suffix") or model.get("continuing_subword_prefix"):
        return None
    pieces = [b""] * vocabulary
    for token, number in entries.items():
        pieces[number] = token.encode() if number in added else stands_for(token)
    for number, each in added.items():
        if each.special:
            pieces[number] = b""
    return pieces


def stands_for(token: str) -> bytes:
    """The bytes of an entry; as the library does, its own where it holds a character that is none of the alphabet."""
    table = alphabet()
    try:
        return bytes([table[character] for character in token])
    except KeyError:
        return token.encode()


def exact(values: Mapping[str, Any], entries: Mapping[str, int]) -> bool:
    """Whether the bytes of a text are those of its ids, of every text."""
    levels = [each for each in _parts(values.get("pre_tokenizer")) if each.get("type") == "ByteLevel"]
    return (
        values.get("normalizer") is None
        and bool(levels)
        and not any(each.get("add_prefix_space") for each in levels)
        and all(character in entries for character in alphabet())
        and all(not (token["lstrip"] or token["rstrip"]) for token in values.get("added_tokens", []))
    )


def _parts(value: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if value is None:
        return
    yield value
    for part in value.get("pretokenizers", []):
        yield from _parts(part)
