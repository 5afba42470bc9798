"""Rows of a stream in blocks: as many as are shuffled together, from a place that is written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from nlpkernel.sampling import key, permute
from nlpkernel_text.packing import Packer, RowPacker
from nlpkernel_text.streaming.ahead import Ahead
from nlpkernel_text.streaming.reading import Encoded, Position, Reading
from nlpkernel_text.streams import Stream
from nlpkernel_text.tokenizers.encoders import Ids

#: Purpose of a key.
_SHUFFLE = 0xB10C


@attrs.frozen
class Start:
    """Where a block begins: in the documents from `at` on, `skip` units after their beginning; a unit is a row where
    rows begin with documents, else a token. number: blocks before it."""

    at: Position = attrs.field(factory=Position)
    skip: int = 0
    number: int = 0


@attrs.frozen(eq=False)
class Block:
    """Some rows, in the order in which they come, by their numbers in `packer`; passes over the files before each.
    files: the file of each number that stands for one in the packer's stream."""

    start: Start
    packer: Packer
    rows: Ids
    passed: Ids
    files: list[int]


class Blocks:
    """Blocks of `size` rows. make: the packer for some documents. count: told of what was left out, with `owner` as who
    left out what does not fit into rows."""

    def __init__(
        self,
        reading: Reading,
        make: Callable[[Stream], Packer],
        *,
        size: int,
        seed: int,
        shuffle: bool,
        ahead: int,
        count: Callable[[str, str, int], None],
        owner: str,
    ) -> None:
        self._reading, self._make, self._size = reading, make, size
        self._seed, self._shuffle, self._ahead = seed, shuffle, ahead
        self._count, self._owner = count, owner
        #: The newest pass that gave something.
        self._full = 0
        self._source: Ahead[Encoded] | None = None
        #: Documents that are not used up, and how many units they have.
        self._pending: list[Encoded] = []
        self._units: list[int] = []
        #: Where the next block begins.
        self.start = Start()

    def seek(self, start: Start) -> None:
        """The next block is the one that begins there."""
        self.close()
        self._full = start.at.passed
        self.start, self._pending, self._units = start, [], []

    def next(self) -> Block:
        """The next block."""
        if self._source is None:
            self._source = Ahead(self._reading.documents(self.start.at), self._ahead)
        empty = self._make(_stream([], 0))
        by_row = isinstance(empty, RowPacker)
        need = self._size if by_row else self._size * empty.window + 1
        while sum(self._units) - self.start.skip < need:
            self._take(by_row)
        packer = self._make(_stream(self._pending, 0 if by_row else self.start.skip))
        if isinstance(packer, RowPacker):
            rows = np.arange(self.start.skip, self.start.skip + self._size)
            documents = packer.documents[rows]
        else:
            rows = np.arange(self._size)
            documents = np.searchsorted(packer.stream.starts, rows * packer.window, side="right") - 1
        # A document's file is, in the stream of a block, the number of the batch that it is in.
        passed = np.array([each.at.passed for each in self._pending])[packer.stream.where[documents, 0]]
        files = [each.at.file for each in self._pending]
        block = Block(self.start, packer, self._ordered(rows, passed), passed, files)
        self._forget(self.start.skip + (self._size if by_row else self._size * packer.window))
        return block

    def close(self) -> None:
        """End reading."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _take(self, by_row: bool) -> None:
        assert self._source is not None
        taken = self._source.take()
        for (source, what), number in taken.counts.items():
            self._count(source, what, number)
        units = len(taken.tokens)
        if by_row:
            packer = self._make(_stream([taken], 0))
            assert isinstance(packer, RowPacker)
            units = packer.samples
            for what, number in packer.left_out().items():
                self._count(self._owner, f"{what} (train)", number)
        if units:
            self._full = taken.at.passed
            self._pending.append(taken)
            self._units.append(units)
        elif taken.at.passed > self._full + 1:
            raise self._reading.nothing()

    def _ordered(self, rows: Ids, passed: Ids) -> Ids:
        """In another order within each pass: what comes again comes after all else."""
        if not self._shuffle:
            return rows
        parts = np.split(rows, np.flatnonzero(np.diff(passed)) + 1)
        keys = [key(self._seed, _SHUFFLE, self.start.number, number) for number in range(len(parts))]
        return np.concatenate(
            [
                part[permute(np.arange(len(part)), len(part), one)]
                for part, one in zip(parts, keys, strict=True)
            ]
        )

    def _forget(self, skip: int) -> None:
        """Let go of documents that are used up, and write down where the next block begins."""
        while len(self._units) > 1 and skip >= self._units[0]:
            skip -= self._units.pop(0)
            del self._pending[0]
        self.start = Start(self._pending[0].at, skip, self.start.number + 1)


def _stream(pending: list[Encoded], skip: int) -> Stream:
    """Documents as a stream, without their first `skip` tokens; as the file of each the number of the batch it is
    in."""
    tokens: Any = np.concatenate([each.tokens for each in pending] or [np.zeros(0, dtype=np.int64)])
    sizes: Any = np.concatenate([each.sizes for each in pending] or [np.zeros(0, dtype=np.int64)])
    places = np.concatenate([each.places for each in pending] or [np.zeros(0, dtype=np.int64)])
    batches = np.repeat(np.arange(len(pending)), [len(each.sizes) for each in pending])
    starts = sizes.cumsum() - sizes - skip
    # The one that is cut has begun before the stream does.
    first = max(0, int(np.searchsorted(starts, 0, side="right")) - 1)
    where = np.stack((batches, places), axis=1)
    return Stream(tokens[skip:], starts[first:], where[first:])
