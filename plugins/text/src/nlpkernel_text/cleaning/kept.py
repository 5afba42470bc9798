"""Documents as they are kept in the cache: a file of msgpack maps, one for some documents of one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from nlpkernel.errors import DataError, fail
from nlpkernel_text.chunks import Chunk
from nlpkernel_text.cleaning.batches import Batch

#: Name of the file.
NAME = "documents"


def write(path: Path, batches: Iterable[Batch]) -> dict[str, list[int]]:
    """Write documents, those of a file one after the other. What `Kept` needs to find them: by the number of a file,
    where its documents begin, how many there are, and their characters."""
    files: dict[str, list[int]] = {}
    packer = msgpack.Packer()
    with path.open("wb") as stream:
        for batch in batches:
            for file, first, last in _runs(batch):
                facts = files.setdefault(str(file), [stream.tell(), 0, 0])
                texts = list(batch.texts[first:last])
                facts[1] += len(texts)
                facts[2] += sum(map(len, texts))
                columns = {name: list(values[first:last]) for name, values in batch.columns.items()}
                kept = {"file": file, "texts": texts, "places": list(batch.places[first:last])}
                try:
                    stream.write(packer.pack({**kept, "columns": columns}))
                except UnicodeEncodeError as error:
                    raise fail(
                        DataError,
                        "TXT031",
                        f"a stage gave a text with half a surrogate pair, which is no character: {error.object[:80]!r}",
                        hint="the stage has to give whole characters",
                    ) from error
    return files


class Kept:
    """Documents that `write` has written, with what it gave."""

    def __init__(self, path: Path, files: Mapping[str, list[int]]) -> None:
        self._path, self._files = path, files

    def documents(self, file: int) -> int:
        """How many there are of a file."""
        return self._files.get(str(file), (0, 0, 0))[1]

    def characters(self, file: int) -> int:
        """How many characters there are of a file."""
        return self._files.get(str(file), (0, 0, 0))[2]

    def chunks(self, file: int) -> Iterator[Chunk]:
        """The documents of a file."""
        if str(file) not in self._files:
            return
        with self._path.open("rb") as stream:
            stream.seek(self._files[str(file)][0])
            for kept in msgpack.Unpacker(stream, max_buffer_size=0):
                if kept["file"] != file:
                    return
                yield Chunk(kept["texts"], kept["places"], columns=kept["columns"])


def _runs(batch: Batch) -> Iterator[tuple[int, int, int]]:
    """Stretches of one file: its number, first and last."""
    first = 0
    for number in range(1, len(batch) + 1):
        if number == len(batch) or batch.files[number] != batch.files[first]:
            yield batch.files[first], first, number
            first = number
