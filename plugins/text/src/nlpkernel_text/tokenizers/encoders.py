"""The tokenizers that need no library: bytes and characters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nlpkernel.errors import DataError, fail

Ids = np.ndarray[Any, np.dtype[Any]]

#: Ids of many texts one after the other, and how many each has (int64).
Flat = tuple[Ids, Ids]

#: What stands for a character that is not known.
REPLACEMENT = "\ufffd"


class ByteTokenizer:
    """UTF-8 bytes as ids 0 to 255; 256 ends a document."""

    vocabulary = 257
    end: int | None = 256
    pad: int | None = None
    #: No text is unknown.
    unknown: int | None = None

    def __init__(self) -> None:
        #: Bytes of text that each id stands for.
        self.byte_lengths = np.array([1] * 256 + [0], dtype=np.int64)

    def encode(self, text: str) -> list[int]:
        """Ids of one text."""
        return list(text.encode("utf-8"))

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of many texts, uint8."""
        return split(*self.encode_flat(texts))

    def encode_flat(self, texts: Sequence[str]) -> Flat:
        """Ids of many texts one after the other, and how many each has."""
        encoded = [text.encode("utf-8") for text in texts]
        sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        return np.frombuffer(b"".join(encoded), dtype=np.uint8), sizes

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no text come out as U+FFFD, the end as nothing."""
        return bytes(number for number in ids if number < 256).decode("utf-8", "replace")

    def piece(self, number: int) -> str:
        """The byte that an id stands for, as a person reads it; nothing for the end."""
        return bytes([number][: number < 256]).decode("utf-8", "backslashreplace")

    def save(self) -> bytes:
        """Its kind as JSON."""
        return b'{"kind": "bytes"}\n'

    @classmethod
    def load(cls, saved: bytes) -> ByteTokenizer:
        """Take up what `save` gave."""
        read_saved(saved, "bytes")
        return cls()


class CharacterTokenizer:
    """Characters as ids in the order of `characters`; then, if wanted, U+FFFD for all others and the document's end."""

    pad: int | None = None

    def __init__(self, characters: str, *, replace: bool, end: bool) -> None:
        if replace and REPLACEMENT not in characters:
            characters += REPLACEMENT
        self.characters = characters
        self.replace = replace
        self.end: int | None = len(characters) if end else None
        self.vocabulary = len(characters) + end
        #: Id for all characters that are not known, if there is one.
        self.unknown: int | None = characters.index(REPLACEMENT) if replace else None
        points = np.array([ord(character) for character in characters], dtype=np.int64)
        unknown = characters.index(REPLACEMENT) if replace else self.vocabulary
        # One more than the largest code point, for all that are larger still.
        self._table = np.full(int(points.max(initial=-1)) + 2, unknown, dtype=np.uint32)
        self._table[points] = np.arange(len(characters))
        #: Bytes of text that each id stands for; None where an id stands for characters of several lengths.
        self.byte_lengths: Ids | None = None
        if not replace:
            self.byte_lengths = np.array(
                [len(character.encode("utf-8")) for character in characters] + [0] * end, dtype=np.int64
            )

    @classmethod
    def train(cls, texts: Iterable[str], *, replace: bool, end: bool) -> CharacterTokenizer:
        """The tokenizer for the characters of `texts`."""
        characters: set[str] = set()
        for text in texts:
            characters.update(text)
        return cls("".join(sorted(characters)), replace=replace, end=end)

    def encode(self, text: str) -> list[int]:
        """Ids of one text. Raises DataError for a character that is not known, unless it is to be replaced."""
        ids: list[int] = self._encode(text).tolist()
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of many texts, uint32."""
        return split(*self.encode_flat(texts))

    def encode_flat(self, texts: Sequence[str]) -> Flat:
        """Ids of many texts one after the other, and how many each has."""
        sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        return self._encode("".join(texts)), sizes

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; the end comes out as nothing."""
        return "".join(self.characters[number] for number in ids if number < len(self.characters))

    def save(self) -> bytes:
        """The characters as JSON."""
        saved = {
            "kind": "characters",
            "characters": self.characters,
            "replace": self.replace,
            "end": self.end is not None,
        }
        return json.dumps(saved).encode()

    @classmethod
    def load(cls, saved: bytes) -> CharacterTokenizer:
        """Take up what `save` gave."""
        values = read_saved(saved, "characters")
        return cls(values["characters"], replace=values["replace"], end=values["end"])

    def _encode(self, text: str) -> Ids:
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        ids: Ids = self._table[np.minimum(points, len(self._table) - 1)]
        if not self.replace:
            # The id one past the last stands for what the table does not have.
            unknown = np.flatnonzero(ids == self.vocabulary)
            if unknown.size:
                character = text[int(unknown[0])]
                raise fail(
                    DataError,
                    "TXT008",
                    f"the character {character!r} (U+{ord(character):04X}) is not in the vocabulary",
                    hint='write tokenizer = { use = "characters", unknown = "replace" }',
                )
        return ids


def split(ids: Ids, sizes: Ids) -> list[Ids]:
    """The ids of each text."""
    ends = sizes.cumsum().tolist()
    return [ids[end - size : end] for size, end in zip(sizes.tolist(), ends, strict=True)]


def read_saved(saved: bytes, kind: str) -> dict[str, Any]:
    """A saved tokenizer of this module. Raises DataError where it is none of this kind."""
    try:
        values = json.loads(saved)
        if values["kind"] == kind:
            return dict(values)
        what = f"is one of kind {values['kind']!r}"
    except (ValueError, TypeError, KeyError) as error:
        what = f"cannot be read ({error})"
    raise fail(DataError, "TXT012", f"the saved tokenizer {what}, where one of kind {kind!r} is wanted")
