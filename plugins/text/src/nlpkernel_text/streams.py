"""A split as one stream of tokens on disk: written once, then memory-mapped."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import attrs
import numpy as np

from nlpkernel.errors import DataError, NlpkernelError, Place
from nlpkernel_text.encoders import Flat, Ids
from nlpkernel_text.plain import Chunk, cut

if TYPE_CHECKING:
    from nlpkernel.context import Task
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.corpus import Corpus, Piece, Split

#: Characters and texts that go to the tokenizer at once.
_CHARACTERS = 1 << 21
_TEXTS = 1 << 14


@attrs.frozen(eq=False)
class Stream:
    """The tokens of a split, its documents one after the other, each followed by the end token if there is
    one.

    tokens: uint16 or uint32. starts: int64, where each document begins. where: uint32 [documents, 2], file
    (by its number) and line of each document.
    """

    tokens: Ids
    starts: Ids
    where: Ids


class StreamWriter:
    """Writes the stream of one split to `<name>.tokens`, `.starts` and `.where` in a folder."""

    def __init__(self, folder: Path, name: str, tokenizer: Tokenizer) -> None:
        self.type = np.dtype(np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32)
        self._end = tokenizer.end
        self._paths = [folder / f"{name}.{part}" for part in ("tokens", "starts", "where")]
        self._files: list[BinaryIO] = [path.open("wb") for path in self._paths]
        self._open = False
        self.length = 0
        self.documents = 0

    def add(self, file: int, chunk: Chunk, ids: Ids, sizes: Ids) -> None:
        """Append the tokens of a chunk: `ids` of its texts one after the other, and how many each has."""
        if self._end is not None:
            closing = np.ones(len(sizes), dtype=np.int64)
            closing[-1] = chunk.closes
            # The place of each end, of which those before it have moved it.
            ends = (sizes + closing).cumsum()[closing > 0] - 1
            tokens = np.empty(len(ids) + len(ends), dtype=self.type)
            is_end = np.zeros(len(tokens), dtype=bool)
            is_end[ends] = True
            tokens[is_end] = self._end
            tokens[~is_end] = ids
            ids, sizes = tokens, sizes + closing
        tokens_file, starts, where = self._files
        ids.astype(self.type, copy=False).tofile(tokens_file)
        # A document without any token is none.
        begun = sizes > 0
        # What continues a document of the other split begins one here.
        begun[0] &= chunk.opens or not self._open
        begins = (self.length + sizes.cumsum() - sizes)[begun]
        begins.tofile(starts)
        places = np.empty((len(begins), 2), dtype=np.uint32)
        places[:, 0] = file
        places[:, 1] = np.asarray(chunk.lines)[begun]
        places.tofile(where)
        self.length += len(ids)
        self.documents += len(begins)
        self._open = not chunk.closes

    def close(self) -> None:
        """Finish the files."""
        for file in self._files:
            file.close()


def open_stream(folder: Path, name: str, type: str) -> Stream:
    """Map the files that a StreamWriter left."""
    return Stream(
        _map(folder / f"{name}.tokens", np.dtype(type)),
        _map(folder / f"{name}.starts", np.dtype(np.int64)),
        _map(folder / f"{name}.where", np.dtype(np.uint32)).reshape(-1, 2),
    )


def _map(path: Path, type: np.dtype[Any]) -> Ids:
    if not path.stat().st_size:
        return np.zeros(0, dtype=type)
    # As a plain array: each slice of a memmap object costs a microsecond more.
    return np.memmap(path, dtype=type, mode="r").view(np.ndarray)


def write_streams(
    corpus: Corpus, tokenizer: Tokenizer, folder: Path, task: Task
) -> dict[Split, StreamWriter]:
    """Tokenize all documents into a stream for each split. Raises DataError for what the tokenizer refuses."""
    writers: dict[Split, StreamWriter] = {}
    try:
        for split in ("train", "validation"):
            writers[split] = StreamWriter(folder, split, tokenizer)
        for pieces, (ids, sizes) in _encoded(corpus, tokenizer):
            begin = text = 0
            for piece in pieces:
                mine = sizes[text : text + len(piece.chunk.texts)]
                end = begin + int(mine.sum())
                writers[piece.split].add(piece.file, piece.chunk, ids[begin:end], mine)
                text, begin = text + len(mine), end
                task.advance(sum(map(len, piece.chunk.texts)))
    finally:
        for writer in writers.values():
            writer.close()
    return writers


def _encoded(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[tuple[list[Piece], Flat]]:
    """Pieces with their tokens. The library tokenizes the next ones while these are turned into arrays and written."""
    waiting: deque[tuple[list[Piece], Future[Flat]]] = deque()
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


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    characters = texts = 0
    for piece in pieces:
        batch.append(piece)
        texts += len(piece.chunk.texts)
        characters += sum(map(len, piece.chunk.texts))
        if characters >= _CHARACTERS or texts >= _TEXTS:
            yield batch
            batch, characters, texts = [], 0, 0
    if batch:
        yield batch


def _encode(corpus: Corpus, tokenizer: Tokenizer, pieces: list[Piece]) -> Flat:
    """The tokens of all texts; long ones go to the tokenizer in pieces."""
    texts = [text for piece in pieces for text in piece.chunk.texts]
    parts = [cut(text) for text in texts]
    counts = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    try:
        ids, sizes = _flat(tokenizer, [part for each in parts for part in each])
    except DataError as error:
        raise _located(error, corpus, tokenizer, pieces) from error
    return ids, np.add.reduceat(sizes, counts.cumsum() - counts)


def _flat(tokenizer: Tokenizer, texts: list[str]) -> Flat:
    """Ids of all texts, and how many each has. Ours give them so; many short arrays cost as much as tokenizing."""
    encode_flat = getattr(tokenizer, "encode_flat", None)
    if encode_flat is not None:
        flat: Flat = encode_flat(texts)
        return flat
    encoded = list(tokenizer.encode_batch(texts))
    return np.concatenate(encoded), np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))


def _located(
    error: NlpkernelError, corpus: Corpus, tokenizer: Tokenizer, pieces: list[Piece]
) -> NlpkernelError:
    """The error for the first line that the tokenizer refuses, with its place."""
    for piece in pieces:
        for text, line in zip(piece.chunk.texts, piece.chunk.lines, strict=True):
            for number, each in enumerate(text.split("\n"), line):
                found = _refused(tokenizer, each)
                if found is None:
                    continue
                # The shortest beginning of the line that is refused ends with what is wrong.
                column = bisect_left(
                    range(1, len(each)), True, key=lambda end: bool(_refused(tokenizer, each[:end]))
                )
                place = Place(corpus.files[piece.file].shown, number, column + 1)
                return DataError([attrs.evolve(problem, place=place) for problem in found.problems])
    return error


def _refused(tokenizer: Tokenizer, text: str) -> DataError | None:
    try:
        tokenizer.encode_batch([text])
    except DataError as error:
        return error
    return None
