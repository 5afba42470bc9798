"""SentencePiece models, through the `sentencepiece` library."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from nlpkernel.errors import DataError, PluginError, fail
from nlpkernel_text.tokenizers.encoders import Flat, Ids, split
from nlpkernel_text.tokenizers.spm import BYTE, CONTROL, UNKNOWN, read_model

#: What stands for a space in a piece.
_SPACE = "\u2581"


class PieceTokenizer:
    """A SentencePiece model. Control pieces are never found in a text; user-defined ones are never split."""

    def __init__(self, content: bytes) -> None:
        model = read_model(content)
        if model is None:
            raise fail(DataError, "TXT012", "the saved tokenizer is no SentencePiece model")
        self._content = content
        self._processor = processor = _library().SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(content)
        except RuntimeError as error:
            message = f"the sentencepiece library does not take the model ({error})"
            raise fail(DataError, "TXT014", message) from error
        self.vocabulary: int = processor.get_piece_size()
        self.end: int | None = _or_none(processor.eos_id())
        self.pad: int | None = _or_none(processor.pad_id())
        kinds = {kind for _, kind in model.pieces}
        #: Id for what is not in the vocabulary; None where every text is known.
        self.unknown: int | None = None if BYTE in kinds else _or_none(processor.unk_id())
        self._controls = frozenset(number for number, (_, kind) in enumerate(model.pieces) if kind == CONTROL)
        #: Bytes of text that each id stands for; None where the model changes texts.
        self.byte_lengths: Ids | None = None
        if model.keeps:
            self.byte_lengths = np.array([_length(*piece) for piece in model.pieces], dtype=np.int64)

    def encode(self, text: str) -> list[int]:
        """Ids of one text."""
        ids: list[int] = self._processor.encode(text, out_type=int)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of many texts, on all cores; uint32."""
        return split(*self.encode_flat(texts))

    def encode_flat(self, texts: Sequence[str]) -> Flat:
        """Ids of many texts one after the other, and how many each has."""
        ids = array("I")
        sizes = []
        for found in self._processor.encode(list(texts), out_type=int, num_threads=-1):
            ids.fromlist(found)
            sizes.append(len(found))
        return np.frombuffer(ids, dtype=np.uint32), np.array(sizes, dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no text come out as U+FFFD, control pieces as nothing."""
        text: str = self._processor.decode([int(number) for number in ids if number not in self._controls])
        return text

    def piece(self, number: int) -> str:
        """What an id stands for, as a person reads it."""
        return str(self._processor.id_to_piece(int(number)))

    def save(self) -> bytes:
        """The model."""
        return self._content


def _library() -> Any:
    try:
        import sentencepiece
    except ImportError as error:
        raise fail(
            PluginError,
            "TXT015",
            f"a SentencePiece model needs the package sentencepiece, which cannot be imported ({error})",
            hint='pip install "nlpkernel-plugin-text[sentencepiece]"',
        ) from error
    return sentencepiece


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


def _length(name: str, kind: int) -> int:
    if kind in (CONTROL, UNKNOWN):
        return 0
    return 1 if kind == BYTE else len(name.replace(_SPACE, " ").encode())
