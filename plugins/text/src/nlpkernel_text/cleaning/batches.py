"""Documents on their way through the stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import attrs

from nlpkernel_text.chunks import Chunk

#: Documents and characters that go through the stages at once: calls cost little then, and processes share well.
_DOCUMENTS = 512
_CHARACTERS = 1 << 20


@attrs.frozen
class Batch:
    """Whole documents, in order: texts, columns by name, and the file (by its number) and place of each."""

    texts: Sequence[str]
    columns: Mapping[str, Sequence[Any]]
    files: Sequence[int]
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.texts)

    def kept(self, texts: Sequence[str], dropped: Mapping[int, str]) -> Batch:
        """The same documents with other texts, without those that are dropped."""
        if not dropped:
            return attrs.evolve(self, texts=texts)
        stay = [number for number in range(len(self.texts)) if number not in dropped]
        return Batch(
            [texts[number] for number in stay],
            {name: [values[number] for number in stay] for name, values in self.columns.items()},
            [self.files[number] for number in stay],
            [self.places[number] for number in stay],
        )


class Names(Sequence[str]):
    """Where each document of a batch comes from, put together when it is asked for."""

    def __init__(self, shown: Sequence[str], batch: Batch) -> None:
        self._shown, self._batch = shown, batch

    def __len__(self) -> int:
        return len(self._batch.files)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return f"{self._shown[self._batch.files[index]]}:{self._batch.places[index]}"


def batches(chunks: Iterable[tuple[int, Chunk]]) -> Iterator[Batch]:
    """Whole documents of chunks (each with the number of its file) in batches."""
    texts: list[str] = []
    columns: dict[str, list[Any]] = {}
    files: list[int] = []
    places: list[int] = []
    characters = 0
    #: The pieces of a document that is not whole yet.
    pieces: list[str] = []
    for file, chunk in chunks:
        if not (chunk.opens and chunk.closes):
            pieces.append(chunk.texts[0])
            if chunk.opens:
                opened = chunk
            if not chunk.closes:
                continue
            chunk = Chunk(["".join(pieces)], opened.lines, columns=opened.columns)
            pieces = []
        if texts and columns.keys() != chunk.columns.keys():
            yield Batch(texts, columns, files, places)
            texts, columns, files, places, characters = [], {}, [], [], 0
        texts += chunk.texts
        places += chunk.lines
        files += [file] * len(chunk.texts)
        for name, values in chunk.columns.items():
            columns.setdefault(name, []).extend(values)
        characters += sum(map(len, chunk.texts))
        if len(texts) >= _DOCUMENTS or characters >= _CHARACTERS:
            yield Batch(texts, columns, files, places)
            texts, columns, files, places, characters = [], {}, [], [], 0
    if texts:
        yield Batch(texts, columns, files, places)
