"""A split as one stream of tokens on disk: written once, then memory-mapped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import attrs
import numpy as np

from nlpkernel_text.chunks import Chunk
from nlpkernel_text.encoding import Encoded
from nlpkernel_text.fields import IMAGE, LABEL, LABELS, PROMPT, TAGS, TARGET, WEIGHT
from nlpkernel_text.labels import Labels
from nlpkernel_text.tokenizers.encoders import Ids

if TYPE_CHECKING:
    from nlpkernel.hookspecs.tokenizer import Tokenizer

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")


@attrs.frozen(eq=False)
class Stream:
    """The tokens of a split, its documents one after the other, each followed by the end token if there is
    one.

    tokens: uint16 or uint32. starts: int64, where each document begins. where: uint32 [documents, 2], file (by its
    number) and place in it of each document. labels: int32, the number of each document's class; weights: float64, how
    often it should come; tags: int32, the number of each token's tag, -1 for one without; None where the plan names no
    field for them. targets: the second text of each document. images: its image. sets: its labels, where it may have
    any number of them. prompts: int32, how many tokens of each are of its prompt. texts: the documents as text; None
    where nobody needs it."""

    tokens: Ids
    starts: Ids
    where: Ids
    labels: Ids | None = None
    weights: Ids | None = None
    tags: Ids | None = None
    targets: Targets | None = None
    texts: Texts | None = None
    images: Images | None = None
    sets: Sets | None = None
    prompts: Ids | None = None


@attrs.frozen(eq=False)
class Targets:
    """Second texts. tokens: one after the other, each followed by the end token if there is one, uint16 or uint32.
    starts: int64, where each begins, and where the last one ends."""

    tokens: Ids
    starts: Ids


@attrs.frozen(eq=False)
class Sets:
    """The labels of documents, one document after another: numbers int32; starts: int64, where those of each document
    begin, and the end of all."""

    numbers: Ids
    starts: Ids


@attrs.frozen(eq=False)
class Images:
    """Images of documents. pixels: uint8 [images, 3, size, size], of both splits. numbers: int64, which of them each
    document has."""

    pixels: Ids
    numbers: Ids


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
    """Writes the stream of one split to `<name>.tokens`, `.starts` and `.where` in a folder; to `.labels`, `.weights`,
    `.tags`, `.prompts` (how long they are), `.images` (their numbers), `.targets` and `.ends` (of targets), `.sets` and
    `.set_ends` (of labels) where documents have them, and to `.texts` and `.bounds` with `texts`."""

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
        self._targets = self._in_sets = 0
        self.length = 0
        self.documents = 0

    def add(self, file: int, shown: str, chunk: Chunk, encoded: Encoded) -> None:
        """Append the tokens of a chunk of a file."""
        ids, sizes = encoded.tokens
        tags = self._tagged(chunk, shown, encoded)
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
            if tags is not None:
                inner, tags = tags, np.full(len(tokens), -1, dtype=np.int32)
                tags[~is_end] = inner
            ids, sizes = tokens, sizes + closing
        ids.astype(self.type, copy=False).tofile(self._files["tokens"])
        if tags is not None:
            tags.tofile(self._file("tags"))
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
        for column in (LABEL, LABELS, WEIGHT, TAGS, TARGET, PROMPT, IMAGE):
            if any(chunk.texts):
                self._labels.expect(column, column in chunk.columns, chunk.lines[0], shown)
        if LABEL in chunk.columns:
            train = self._name == "train"
            numbers = self._labels.number(chunk.columns[LABEL], train, chunk.lines, shown)
            numbers[begun].tofile(self._file("labels"))
        if LABELS in chunk.columns:
            self._add_sets(chunk, shown, begun)
        if WEIGHT in chunk.columns:
            weights = np.array([float(value) for value in chunk.columns[WEIGHT]])
            weights[begun].tofile(self._file("weights"))
        if IMAGE in chunk.columns:
            np.array(chunk.columns[IMAGE], dtype=np.int64)[begun].tofile(self._file("images"))
        if encoded.prompts is not None:
            encoded.prompts[begun].astype(np.int32).tofile(self._file("prompts"))
        if encoded.targets is not None:
            self._add_targets(*encoded.targets, begun)
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
        # That of a token without a tag, -1, stays.
        settled = np.append(numbers, -1).astype(np.int32)
        for part in ("labels", "tags", "sets"):
            if part in self._files:
                path = self._folder / f"{self._name}.{part}"
                settled[np.fromfile(path, dtype=np.int32)].tofile(path)

    def _tagged(self, chunk: Chunk, shown: str, encoded: Encoded) -> Ids | None:
        """The number for now of each token's tag: the first token of a word has that of the word."""
        if encoded.words is None:
            return None
        if TAGS in chunk.columns:
            each = chunk.columns[TAGS]
            places = [place for place, tags in zip(chunk.lines, each, strict=True) for _ in tags]
            flat = [tag for tags in each for tag in tags]
            numbers = self._labels.number(flat, self._name == "train", places, shown)
        else:
            # Any will do: it says where words begin.
            numbers = np.zeros(len(encoded.words), dtype=np.int32)
        tags = np.full(len(encoded.tokens[0]), -1, dtype=np.int32)
        begins = encoded.words.cumsum() - encoded.words
        real = encoded.words > 0
        tags[begins[real]] = numbers[real]
        return tags

    def _add_sets(self, chunk: Chunk, shown: str, begun: Ids) -> None:
        sets = [each for each, real in zip(chunk.columns[LABELS], begun.tolist(), strict=True) if real]
        lines = [line for line, real in zip(chunk.lines, begun.tolist(), strict=True) if real]
        flat = [label for each in sets for label in each]
        places = [line for line, each in zip(lines, sets, strict=True) for _ in each]
        numbers = self._labels.number(flat, self._name == "train", places, shown)
        numbers.tofile(self._file("sets"))
        sizes = np.fromiter(map(len, sets), dtype=np.int64, count=len(sets))
        (self._in_sets + sizes.cumsum()).tofile(self._file("set_ends"))
        self._in_sets += len(flat)

    def _add_targets(self, ids: Ids, sizes: Ids, begun: Ids) -> None:
        # A tokenizer's own type may have no room for the end.
        ids = ids[np.repeat(begun, sizes)].astype(self.type)
        sizes = sizes[begun]
        if self._end is not None:
            ids = np.insert(ids, sizes.cumsum(), self._end)
            sizes = sizes + 1
        ids.tofile(self._file("targets"))
        (self._targets + sizes.cumsum()).tofile(self._file("ends"))
        self._targets += int(sizes.sum())

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


def open_stream(folder: Path, name: str, type: str, pixels: Ids | None = None) -> Stream:
    """Map the files that a StreamWriter left. pixels: of the images that its documents have the numbers of."""

    def mapped(part: str, type: Any) -> Ids | None:
        path = folder / f"{name}.{part}"
        return _map(path, np.dtype(type)) if path.exists() else None

    content, bounds = mapped("texts", np.uint8), mapped("bounds", np.int64)
    targets, ends = mapped("targets", type), mapped("ends", np.int64)
    sets, set_ends = mapped("sets", np.int32), mapped("set_ends", np.int64)
    images = None if pixels is None else mapped("images", np.int64)
    return Stream(
        _map(folder / f"{name}.tokens", np.dtype(type)),
        _map(folder / f"{name}.starts", np.dtype(np.int64)),
        _map(folder / f"{name}.where", np.dtype(np.uint32)).reshape(-1, 2),
        mapped("labels", np.int32),
        mapped("weights", np.float64),
        mapped("tags", np.int32),
        None if targets is None or ends is None else Targets(targets, np.concatenate(([0], ends))),
        None if content is None or bounds is None else Texts(content, bounds),
        None if pixels is None or images is None else Images(pixels, images),
        None if sets is None or set_ends is None else Sets(sets, np.concatenate(([0], set_ends))),
        mapped("prompts", np.int32),
    )


def _map(path: Path, type: np.dtype[Any]) -> Ids:
    if not path.stat().st_size:
        return np.zeros(0, dtype=type)
    # As a plain array: each slice of a memmap object costs a microsecond more.
    return np.memmap(path, dtype=type, mode="r").view(np.ndarray)
