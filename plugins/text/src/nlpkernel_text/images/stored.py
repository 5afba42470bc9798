"""The images of a plan's documents as they are kept: the pixels of all in one file, and which document has which."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import attrs
import numpy as np

from nlpkernel.errors import Place
from nlpkernel_text.fields import IMAGE, Taking
from nlpkernel_text.images.decoding import Decoder, Unreadable, content, digest, shown
from nlpkernel_text.reading.faults import Faults, Skipped
from nlpkernel_text.reading.records import read

if TYPE_CHECKING:
    from nlpkernel.context import Task
    from nlpkernel_text.cache import Entry
    from nlpkernel_text.corpus import Corpus
    from nlpkernel_text.reading.files import File
    from nlpkernel_text.settings import Images

#: Files of an entry of the cache.
_PIXELS, _ORDER = "pixels", "order"
#: Most threads: Pillow decodes beside Python's own work.
_THREADS = 8
#: The name of what is left out, in the run's report.
BROKEN = "broken images"

Array = np.ndarray[Any, np.dtype[Any]]


@attrs.frozen(eq=False)
class Stored:
    """Decoded images. pixels: uint8 [images, 3, size, size]. order: int64, the image of each document that has one,
    file after file, -1 for one that cannot be read; starts: where each file's begin."""

    pixels: Array
    order: Array
    starts: Sequence[int]

    @classmethod
    def open(cls, entry: Entry) -> Stored:
        """Map what `decode` left in an entry."""
        size, counts = entry.facts["size"], entry.facts["documents"]
        flat = _mapped(entry.folder / _PIXELS, np.uint8)
        order = _mapped(entry.folder / _ORDER, np.int64)
        starts = (np.cumsum(counts) - counts).tolist()
        return cls(flat.reshape(-1, 3, size, size), order, starts)

    @property
    def broken(self) -> int:
        """How many cannot be read."""
        return int((self.order < 0).sum())

    def taking(self, file: int) -> Taking:
        """What gives the documents of a file their images again, in the order in which `decode` saw them."""
        at = iter(range(self.starts[file], len(self.order)))

        def take(value: Any, place: Place) -> int | None:
            number = int(self.order[next(at)])
            return None if number < 0 else number

        return take


def content_of(corpus: Corpus) -> tuple[list[str], int]:
    """What stands for the content of the images that the records of each file name by their paths, and the bytes of
    these. Raise DataError for files of records that cannot be read."""
    digests, size = [], 0
    for listed in corpus.files:
        found = hashlib.sha256()
        template = listed.fields.templates.get(IMAGE)
        if template is not None:
            for row in _rows(corpus, listed, template.columns):
                told, count = digest(template.fill(row), listed.file)
                found.update(told)
                size += count
        digests.append(found.hexdigest())
    return digests, size


def decode(corpus: Corpus, settings: Images, folder: Path, task: Task) -> dict[str, Any]:
    """Decode the images of all documents into files of a folder, by several threads; facts of them. Raise DataError for
    an image that cannot be read (TXT038), unless the plan says to skip such: they are counted."""
    faults = Faults(corpus.text.on_error == "skip")
    counts = []
    with (folder / _PIXELS).open("wb") as pixels, _Decoding(Decoder(settings), faults, pixels, task) as work:
        for number, listed in enumerate(corpus.files):
            before = work.asked
            # What else is wrong with records is told when their texts are read.
            with suppress(Skipped):
                for _ in corpus.read(number, Faults(faults.skip), work.taking(listed.file)):
                    pass
            counts.append(work.asked - before)
        work.finish()
    np.array(work.order, dtype=np.int64).tofile(folder / _ORDER)
    return {
        "size": settings.size,
        "images": work.written,
        "documents": counts,
        "counts": dict(faults.counts),
        "first": faults.first,
    }


class _Decoding:
    """Images on their way to a file, in the order in which they are asked for. asked: how many were; written: those
    that could be read; order: the number of each, -1 for one that cannot be read."""

    def __init__(self, decoder: Decoder, faults: Faults, pixels: BinaryIO, task: Task) -> None:
        self._decoder, self._faults, self._pixels, self._task = decoder, faults, pixels, task
        threads = min(_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="nlpkernel-text-images")
        self._most = 4 * threads
        self._waiting: deque[tuple[Any, Place, Future[tuple[int, bytes]]]] = deque()
        self.asked = self.written = 0
        self.order: list[int] = []

    def __enter__(self) -> _Decoding:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def taking(self, file: File) -> Taking:
        """What asks for the images of the records of a file. Nobody looks at the numbers that it gives."""

        def take(value: Any, place: Place) -> int:
            self._waiting.append((value, place, self._pool.submit(self._decoded, value, file)))
            self.asked += 1
            if len(self._waiting) > self._most:
                self._next()
            return 0

        return take

    def finish(self) -> None:
        """Wait for those that are left."""
        while self._waiting:
            self._next()

    def _decoded(self, value: Any, file: File) -> tuple[int, bytes]:
        data = content(value, file)
        return len(data), self._decoder.pixels(data).tobytes()

    def _next(self) -> None:
        value, place, future = self._waiting.popleft()
        try:
            size, pixels = future.result()
        except Unreadable as error:
            self.order.append(-1)
            message = f"the image {shown(value)} cannot be read: {error}"
            hint = 'mend it, or write on_error = "skip" to leave such records out'
            self._faults.broken(BROKEN, "TXT038", message, place, hint)
            return
        self._task.advance(size)
        self._pixels.write(pixels)
        self.order.append(self.written)
        self.written += 1


def _rows(corpus: Corpus, listed: Any, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The columns of all records of a file that are whole."""
    with suppress(Skipped):
        for records in read(listed.reader, listed.file, columns, Faults(True)):
            for values in zip(*(records.columns[name] for name in columns), strict=True):
                yield dict(zip(columns, values, strict=True))


def _mapped(path: Path, type: Any) -> Array:
    if not path.stat().st_size:
        return np.zeros(0, dtype=type)
    return np.memmap(path, dtype=type, mode="r").view(np.ndarray)
