"""The documents of a plan as tokens: encoded many at once, by threads, and written as streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nlpkernel.errors import DataError
from nlpkernel_text.encoding import Encoded, encode, encode_behind, encode_words, refused_at
from nlpkernel_text.fields import PROMPT, TARGET, WORDS
from nlpkernel_text.labels import Labels
from nlpkernel_text.streams import SPLITS, Split, StreamWriter
from nlpkernel_text.tokenizers.encoders import Flat, Ids

if TYPE_CHECKING:
    from nlpkernel.context import Task
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.corpus import Corpus, Piece

#: Characters and texts that go to the tokenizer at once.
_CHARACTERS = 1 << 21
_TEXTS = 1 << 14


@attrs.frozen
class Written:
    """What was written: the type of the tokens, and the names of the classes in the order of their numbers."""

    type: str
    labels: tuple[str, ...]


def write_streams(
    corpus: Corpus, tokenizer: Tokenizer, labels: Labels, folder: Path, task: Task, *, texts: bool = False
) -> Written:
    """Tokenize all documents into a stream for each split, with the texts of the training split too where they are
    asked for. Raise DataError for what the tokenizer refuses, and for a label that is never trained."""
    writers: dict[Split, StreamWriter] = {}
    try:
        for split in SPLITS:
            keep = texts and split == "train"
            writers[split] = StreamWriter(folder, split, tokenizer, labels, texts=keep)
        for pieces, encoded in _encoded(corpus, tokenizer):
            for piece, mine in zip(pieces, _divided(encoded, pieces), strict=True):
                shown = corpus.files[piece.file].shown
                writers[piece.split].add(piece.file, shown, piece.chunk, mine)
                task.advance(sum(map(len, piece.chunk.texts)))
    finally:
        for writer in writers.values():
            writer.close()
    names, numbers = labels.order()
    for writer in writers.values():
        writer.settle(numbers)
    return Written(writers["train"].type.name, names)


def _divided(encoded: Encoded, pieces: list[Piece]) -> Iterator[Encoded]:
    """What each piece has of the tokens of all."""
    counts = np.array([len(piece.chunk.texts) for piece in pieces])
    tokens = _parts(encoded.tokens, counts)
    none = [None] * len(pieces)
    words = none if encoded.words is None else np.split(encoded.words, _words_of(pieces).cumsum()[:-1])
    targets = none if encoded.targets is None else _parts(encoded.targets, counts)
    prompts = none if encoded.prompts is None else np.split(encoded.prompts, counts.cumsum()[:-1])
    return map(Encoded, tokens, words, targets, prompts)


def _parts(flat: Flat, counts: Ids) -> list[Flat]:
    """Some texts after the other, `counts` of them in each part."""
    ids, sizes = flat
    each = np.split(sizes, counts.cumsum()[:-1])
    ends = np.array([part.sum() for part in each], dtype=np.int64).cumsum()
    return list(zip(np.split(ids, ends[:-1]), each, strict=True))


def _words_of(pieces: list[Piece]) -> Ids:
    return np.array([sum(map(len, piece.chunk.columns[WORDS])) for piece in pieces])


def _encoded(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[tuple[list[Piece], Encoded]]:
    """Pieces with their tokens. The library tokenizes the next ones while these are turned into arrays and written."""
    waiting: deque[tuple[list[Piece], Future[Encoded]]] = deque()
    with ThreadPoolExecutor(2, thread_name_prefix="nlpkernel-text") as pool:
        try:
            for pieces in _batches(corpus.pieces()):
                waiting.append((pieces, pool.submit(_encode, corpus, tokenizer, pieces)))
                if len(waiting) > 2:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _column(pieces: list[Piece], name: str) -> list[Any]:
    return [value for piece in pieces for value in piece.chunk.columns[name]]


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Pieces that have the same columns, some at a time."""
    batch: list[Piece] = []
    characters = texts = 0
    for piece in pieces:
        if batch and batch[0].chunk.columns.keys() != piece.chunk.columns.keys():
            yield batch
            batch, characters, texts = [], 0, 0
        batch.append(piece)
        texts += len(piece.chunk.texts)
        characters += sum(map(len, piece.chunk.texts))
        if characters >= _CHARACTERS or texts >= _TEXTS:
            yield batch
            batch, characters, texts = [], 0, 0
    if batch:
        yield batch


def _encode(corpus: Corpus, tokenizer: Tokenizer, pieces: list[Piece]) -> Encoded:
    """The tokens of all texts, and of what belongs to them."""
    columns = pieces[0].chunk.columns
    try:
        if WORDS in columns:
            return Encoded(*encode_words(tokenizer, _column(pieces, WORDS)))
        all_texts = [text for piece in pieces for text in piece.chunk.texts]
        targets = encode(tokenizer, _column(pieces, TARGET)) if TARGET in columns else None
        if PROMPT in columns:
            tokens, prompts = encode_behind(tokenizer, _column(pieces, PROMPT), all_texts)
            return Encoded(tokens, None, targets, prompts)
        return Encoded(encode(tokenizer, all_texts), None, targets)
    except DataError as error:
        for piece in pieces:
            shown = corpus.files[piece.file].shown
            for texts in (piece.chunk.texts, *map(piece.chunk.columns.get, (TARGET, PROMPT))):
                place = texts and refused_at(tokenizer, texts, piece.chunk.lines, shown)
                if place:
                    raise place from error
        raise
