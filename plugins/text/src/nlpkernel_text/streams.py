"""A split as one stream of tokens on disk: written once, then memory-mapped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import attrs
import numpy as np

from nlpkernel.errors import DataError
from nlpkernel_text.chunks import Chunk
from nlpkernel_text.encoding import encode, refused_at
from nlpkernel_text.fields import LABEL, WEIGHT
from nlpkernel_text.labels import Labels
from nlpkernel_text.tokenizers.encoders import Flat, Ids

if TYPE_CHECKING:
    from nlpkernel.context import Task
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.corpus import Corpus, Piece

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")

#: Characters and texts that go to the tokenizer at once.
_CHARACTERS = 1 << 21
_TEXTS = 1 << 14


@attrs.frozen(eq=False)
class Stream:
    """The tokens of a split, its documents one after the other, each followed by the end token if there is
    one.

    tokens: uint16 or uint32. starts: int64, where each document begins. where: uint32 [documents, 2], file
    (by its number) and place in it of each document. labels: int32, the number of each document's class; weights:
    float64, how often it should come; None where the plan names no field for them. texts: the documents as text; None
    where nobody needs it.
    """

    tokens: Ids
    starts: Ids
    where: Ids
    labels: Ids | None = None
    weights: Ids | None = None
    texts: Texts | None = None


@attrs.frozen(eq=False)
class Texts:
    """Documents as text. content: UTF-8, uint8. starts: int64, where each begins."""

    content: Ids
    starts: Ids

    def __getitem__(self, document: int) -> str:
        """The text of one document."""
        after = document + 1
        end = int(self.starts[after]) if after < len(self.starts) else len(self.content)
        return self.content[int(self.starts[document]) : end].tobytes().decode()


class StreamWriter:
    """Writes the stream of one split to `<name>.tokens`, `.starts` and `.where` in a folder; to `.labels` and
    `.weights` where documents have them, and to `.texts` and `.bounds` with `texts`."""

    def __init__(
        self, folder: Path, name: Split, tokenizer: Tokenizer, labels: Labels, *, texts: bool = False
    ) -> None:
        self.type = np.dtype(np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32)
        self._end = tokenizer.end
        self._folder, self._name = folder, name
        self._labels = labels
        self._texts = texts
        self._files: dict[str, BinaryIO] = {}
        for part in ("tokens", "starts", "where", *(("texts", "bounds") if texts else ())):
            self._file(part)
        self._open = False
        self._bytes = 0
        self.length = 0
        self.documents = 0

    def add(self, file: int, shown: str, chunk: Chunk, ids: Ids, sizes: Ids) -> None:
        """Append the tokens of a chunk of a file: `ids` of its texts one after the other, and how many each has."""
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
        ids.astype(self.type, copy=False).tofile(self._files["tokens"])
        # A document without any token is none.
        begun = sizes > 0
        # What continues a document of the other split begins one here.
        begun[0] &= chunk.opens or not self._open
        begins = (self.length + sizes.cumsum() - sizes)[begun]
        begins.tofile(self._files["starts"])
        places = np.empty((len(begins), 2), dtype=np.uint32)
        places[:, 0] = file
        places[:, 1] = np.asarray(chunk.lines)[begun]
        places.tofile(self._files["where"])
        for column in (LABEL, WEIGHT):
            if any(chunk.texts):
                self._labels.expect(column, column in chunk.columns, chunk.lines[0], shown)
        if LABEL in chunk.columns:
            train = self._name == "train"
            numbers = self._labels.number(chunk.columns[LABEL], train, chunk.lines, shown)
            numbers[begun].tofile(self._file("labels"))
        if WEIGHT in chunk.columns:
            weights = np.array([float(value) for value in chunk.columns[WEIGHT]])
            weights[begun].tofile(self._file("weights"))
        if self._texts:
            self._add_texts(chunk.texts, sizes, begun)
        self.length += len(ids)
        self.documents += len(begins)
        # A document that has no token yet has not begun.
        goes_on = self._open and not chunk.opens and len(sizes) == 1
        self._open = not chunk.closes and (goes_on or bool(sizes[-1]))

    def close(self) -> None:
        """Finish the files."""
        for file in self._files.values():
            file.close()

    def settle(self, numbers: Ids) -> None:
        """Give each label the number that `numbers` has for it. After `close`."""
        if "labels" in self._files:
            path = self._folder / f"{self._name}.labels"
            numbers[np.fromfile(path, dtype=np.int32)].tofile(path)

    def _add_texts(self, texts: list[str], sizes: Ids, begun: Ids) -> None:
        encoded = [text.encode() if size else b"" for text, size in zip(texts, sizes.tolist(), strict=True)]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        (self._bytes + lengths.cumsum() - lengths)[begun].tofile(self._files["bounds"])
        self._files["texts"].write(b"".join(encoded))
        self._bytes += int(lengths.sum())

    def _file(self, part: str) -> BinaryIO:
        if part not in self._files:
            self._files[part] = (self._folder / f"{self._name}.{part}").open("wb")
        return self._files[part]


def open_stream(folder: Path, name: str, type: str) -> Stream:
    """Map the files that a StreamWriter left."""

    def mapped(part: str, type: Any) -> Ids | None:
        path = folder / f"{name}.{part}"
        return _map(path, np.dtype(type)) if path.exists() else None

    content, bounds = mapped("texts", np.uint8), mapped("bounds", np.int64)
    return Stream(
        _map(folder / f"{name}.tokens", np.dtype(type)),
        _map(folder / f"{name}.starts", np.dtype(np.int64)),
        _map(folder / f"{name}.where", np.dtype(np.uint32)).reshape(-1, 2),
        mapped("labels", np.int32),
        mapped("weights", np.float64),
        None if content is None or bounds is None else Texts(content, bounds),
    )


def _map(path: Path, type: np.dtype[Any]) -> Ids:
    if not path.stat().st_size:
        return np.zeros(0, dtype=type)
    # As a plain array: each slice of a memmap object costs a microsecond more.
    return np.memmap(path, dtype=type, mode="r").view(np.ndarray)


@attrs.frozen
class Written:
    """What was written: the type of the tokens, and the names of the classes in the order of their numbers."""

    type: str
    labels: tuple[str, ...]


def write_streams(
    corpus: Corpus, tokenizer: Tokenizer, folder: Path, task: Task, *, texts: bool = False
) -> Written:
    """Tokenize all documents into a stream for each split, with the texts of the training split too where they are
    asked for. Raise DataError for what the tokenizer refuses, and for a label that is never trained."""
    writers: dict[Split, StreamWriter] = {}
    labels = Labels()
    try:
        for split in SPLITS:
            keep = texts and split == "train"
            writers[split] = StreamWriter(folder, split, tokenizer, labels, texts=keep)
        for pieces, (ids, sizes) in _encoded(corpus, tokenizer):
            begin = text = 0
            for piece in pieces:
                mine = sizes[text : text + len(piece.chunk.texts)]
                end = begin + int(mine.sum())
                shown = corpus.files[piece.file].shown
                writers[piece.split].add(piece.file, shown, piece.chunk, ids[begin:end], mine)
                text, begin = text + len(mine), end
                task.advance(sum(map(len, piece.chunk.texts)))
    finally:
        for writer in writers.values():
            writer.close()
    names, numbers = labels.order()
    for writer in writers.values():
        writer.settle(numbers)
    return Written(writers["train"].type.name, names)


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
    """The tokens of all texts."""
    try:
        return encode(tokenizer, [text for piece in pieces for text in piece.chunk.texts])
    except DataError as error:
        for piece in pieces:
            shown = corpus.files[piece.file].shown
            place = refused_at(tokenizer, piece.chunk.texts, piece.chunk.lines, shown)
            if place is not None:
                raise place from error
        raise
