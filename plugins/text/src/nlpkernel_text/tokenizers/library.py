"""Tokenizers of the `tokenizers` library, whatever made them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from nlpkernel.errors import DataError, fail
from nlpkernel_text.tokenizers.bytelevel import byte_pieces, exact, stands_for
from nlpkernel_text.tokenizers.encoders import Flat, Ids, split


class LibraryTokenizer:
    """A tokenizer of the `tokenizers` library.

    The name of a control token (the end, and all that the library calls special), where it stands in a text, is encoded
    as the text it is: no document can hold an end. Tokens that were added and are not special are never split.
    """

    def __init__(self, tokenizer: Tokenizer, *, end: str | None = None, pad: str | None = None) -> None:
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        values = json.loads(tokenizer.to_str())
        added = tokenizer.get_added_tokens_decoder()
        entries: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        #: BPE, WordPiece, Unigram or WordLevel.
        self.kind: str = values["model"]["type"]
        self.vocabulary: int = max(entries.values(), default=-1) + 1
        self.end: int | None = None if end is None else entries[end]
        self.pad: int | None = None if pad is None else entries[pad]
        self._end_name, self._pad_name = end, pad
        #: Whether the library's file says the same by itself.
        self._plain = end == template_end(values) and pad is None
        #: Id for what is not in the vocabulary; None where every text is known.
        self.unknown: int | None = _unknown(values["model"], entries)
        #: Bytes of text that each id stands for; None where they depend on its neighbours, or were changed.
        self.byte_lengths: Ids | None = None
        self._bytes = byte_pieces(values, entries, added, self.vocabulary)
        if self._bytes is not None and exact(values, entries):
            self.unknown = None
            self.byte_lengths = np.array([len(piece) for piece in self._bytes], dtype=np.int64)
        silent = {number for number, token in added.items() if token.special}
        self._controls = frozenset(silent - {self.unknown})
        self._silent = (self._controls | {self.end, self.pad}) - {None}
        self._names = tuple(added[number].content for number in sorted(self._controls))
        self._firsts = tuple({name[0] for name in self._names if name})

    def encode(self, text: str) -> list[int]:
        """Ids of one text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self._suspect(text) and not self._controls.isdisjoint(ids):
            return self._cut(text)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of many texts, on all cores; uint32."""
        return split(*self.encode_flat(texts))

    def encode_flat(self, texts: Sequence[str]) -> Flat:
        """Ids of many texts one after the other, and how many each has."""
        # The fast variant keeps no offsets, which nothing here reads.
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        # Lists become arrays three times as fast by way of `array` as by numpy.
        ids = array("I")
        sizes = []
        for text, encoding in zip(texts, encodings, strict=True):
            found = encoding.ids
            if self._suspect(text) and not self._controls.isdisjoint(found):
                found = self._cut(text)
            ids.fromlist(found)
            sizes.append(len(found))
        return np.frombuffer(ids, dtype=np.uint32), np.array(sizes, dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no text come out as U+FFFD, control tokens as nothing."""
        shown = [number for number in ids if number not in self._silent]
        if self._bytes is not None:
            pieces = self._bytes
            return b"".join([pieces[number] for number in shown]).decode("utf-8", "replace")
        text: str = self._tokenizer.decode(shown, skip_special_tokens=False)
        return text

    def piece(self, number: int) -> str:
        """What an id stands for, as a person reads it; bytes that are no text as \\xNN."""
        if self._bytes is not None and number not in self._silent:
            return self._bytes[number].decode("utf-8", "backslashreplace")
        return self._tokenizer.id_to_token(number) or ""

    def save(self) -> bytes:
        """The library's own file (tokenizer.json); it names the end and the padding in the library's way."""
        text: str = self._tokenizer.to_str(pretty=False)
        if self._plain:
            return text.encode()
        values, end = json.loads(text), self._end_name
        if end != template_end(values):
            values["post_processor"] = None if end is None else template(end, self.end)
        if self.pad is not None:
            values["padding"] = padding(self._pad_name, self.pad)
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def load(cls, saved: bytes, end: str | None = None, *, kind: str | None = None) -> LibraryTokenizer:
        """Take up what `save` gave; left out, the end is the one that the file names. Raise DataError (TXT012) where it
        is no file of the library, none of this kind, or has no `end`."""
        try:
            text = saved.decode("utf-8")
            values = json.loads(text)
            tokenizer = Tokenizer.from_str(text)
            found = values["model"].get("type", type(tokenizer.model).__name__)
        except Exception as error:
            message = f"the saved tokenizer is no file of the tokenizers library ({error})"
            raise fail(DataError, "TXT012", message) from error
        if kind is not None and found != kind:
            raise fail(DataError, "TXT012", f"the saved tokenizer is a {found}, where a {kind} is wanted")
        end = end or template_end(values)
        pad = (values.get("padding") or {}).get("pad_token")
        for name in (end, pad):
            if name is not None and tokenizer.token_to_id(name) is None:
                raise fail(DataError, "TXT012", f"the saved tokenizer has no token {name!r}")
        return cls(tokenizer, end=end, pad=pad)

    def _suspect(self, text: str) -> bool:
        """Whether a text names a control token."""
        return any(first in text for first in self._firsts) and any(name in text for name in self._names)

    def _cut(self, text: str) -> list[int]:
        """Ids of a text of which the model makes a control token: each name of one is cut in two."""
        parts = [text]
        for name in self._names:
            if len(name) > 1:
                parts = [each for part in parts for each in _halves(part, name)]
        ids: list[int] = []
        for part in parts:
            ids += self._tokenizer.encode(part, add_special_tokens=False).ids
        return [number for number in ids if number not in self._controls]


def _halves(text: str, name: str) -> Iterable[str]:
    *before, last = text.split(name)
    begin = ""
    for part in before:
        yield begin + part + name[:1]
        begin = name[1:]
    yield begin + last


def _unknown(model: Mapping[str, Any], entries: Mapping[str, int]) -> int | None:
    if model["type"] == "Unigram":
        unknown: int | None = model.get("unk_id")
        return unknown
    name = model.get("unk_token")
    return None if name is None else entries.get(name)


def template_end(values: Mapping[str, Any]) -> str | None:
    """The token that a tokenizer.json puts after a text."""
    processor = values.get("post_processor") or {}
    for each in processor.get("processors", [processor]):
        if each.get("type") in ("BertProcessing", "RobertaProcessing"):
            return str(each["sep"][0])
        if each.get("type") == "TemplateProcessing" and each["single"]:
            last = each["single"][-1].get("SpecialToken")
            if last is not None:
                return str(last["id"])
    return None


def template(end: str, number: int | None) -> dict[str, Any]:
    """The part of a tokenizer.json that puts a token after a text."""
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    mark = {"SpecialToken": {"id": end, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [sequence, mark],
        "pair": [sequence, mark, second, mark],
        "special_tokens": {end: {"id": end, "ids": [number], "tokens": [end]}},
    }


def padding(name: str | None, number: int) -> dict[str, Any]:
    """The part of a tokenizer.json that names the padding."""
    return {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": number,
        "pad_type_id": 0,
        "pad_token": name,
    }


def add_domain(tokenizer: Tokenizer, special: Sequence[str]) -> None:
    """Add tokens that are read in texts as they stand, before anything is normalised. Raise DataError (TXT017) where
    the name of one is the library's name for other bytes."""
    values = json.loads(tokenizer.to_str())
    if (values.get("decoder") or {}).get("type") == "ByteLevel":
        for token in special:
            if tokenizer.token_to_id(token) is not None and stands_for(token) != token.encode():
                raise fail(
                    DataError,
                    "TXT017",
                    f"{token!r} cannot be a special token of this vocabulary, in which it names the bytes "
                    f"{stands_for(token)!r}",
                    hint="write another name, or one with more around it",
                )
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in special])
