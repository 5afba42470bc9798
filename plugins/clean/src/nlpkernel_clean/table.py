"""Growing tables in numpy: half or less of what a dictionary takes, and no object for each entry.

Arrays are grown in place (`ndarray.resize`), which the system does for large ones without copying.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Keys = np.ndarray[Any, np.dtype[np.uint64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Values under one key: more tell nothing new, and make a key that half the documents share slow.
_MOST = 32


class Column:
    """An array of rows that grows."""

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self._rows = np.zeros((1024, width), dtype=dtype)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def append(self, rows: Any) -> None:
        """Put rows at the end."""
        end = self._used + len(rows)
        if end > len(self._rows):
            shape = (max(end, len(self._rows) * 5 // 4), self._rows.shape[1])
            self._rows.resize(shape, refcheck=False)
        self._rows[self._used : end] = rows
        self._used = end

    def __getitem__(self, at: Any) -> Any:
        return self._rows[at]

    @property
    def bytes(self) -> int:
        """Memory that the array takes."""
        return self._rows.nbytes


class Table:
    """64-bit keys to numbers below 2^32; several numbers may stand under a key. Open addressing, linear probing."""

    #: Share of the slots that is used at most.
    FULL = 0.75

    def __init__(self) -> None:
        self._keys = np.zeros(4096, dtype=np.uint64)
        self._values = np.zeros(4096, dtype=np.uint32)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def bytes(self) -> int:
        """Memory that the table takes."""
        return self._keys.nbytes + self._values.nbytes

    def find(self, keys: Keys) -> tuple[Numbers, Numbers]:
        """All pairs (index of a key, number under it)."""
        keys = _not_zero(keys)
        where, what = [], []
        at, slots = np.arange(len(keys)), self._home(keys)
        while at.size:
            stored = self._keys[slots]
            same = stored == keys[at]
            if same.any():
                where.append(at[same])
                what.append(self._values[slots[same]].astype(np.int64))
            going = stored != 0
            at, slots = at[going], (slots[going] + 1) & (len(self._keys) - 1)
        if not where:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(where), np.concatenate(what)

    def add(self, keys: Keys, values: Numbers) -> None:
        """Put each number under its key; no pair twice in one call. Raises OverflowError for numbers from 2^32 on."""
        if len(values) and int(values.max()) >> 32:
            raise OverflowError("more than 4 thousand million documents or lines cannot be told apart")
        if self._used + len(keys) > self.FULL * len(self._keys):
            self._grow(self._used + len(keys))
        self._used += self._put(_not_zero(keys), values.astype(np.uint32))

    def _put(self, keys: Keys, values: Any) -> int:
        at, slots = np.arange(len(keys)), self._home(keys)
        passed = np.zeros(len(keys), dtype=np.int64)
        put = 0
        while at.size:
            stored = self._keys[slots]
            free = stored == 0
            into = slots[free]
            # Where several want one slot the last one gets it; the others see it taken, and go on.
            self._keys[into] = keys[at[free]]
            self._values[into] = values[at[free]]
            done = free.copy()
            done[free] = (self._keys[into] == keys[at[free]]) & (self._values[into] == values[at[free]])
            put += int(done.sum())
            passed[at] += self._keys[slots] == keys[at]
            going = ~done & (passed[at] < _MOST)
            at, slots = at[going], (slots[going] + 1) & (len(self._keys) - 1)
        return put

    def _grow(self, needed: int) -> None:
        keys, values = self._keys, self._values
        size = len(keys)
        while needed > self.FULL * size:
            size *= 2
        self._keys, self._values = np.zeros(size, np.uint64), np.zeros(size, np.uint32)
        # In parts: the temporary arrays of a whole table would be larger than the table.
        for start in range(0, len(keys), 1 << 16):
            part = keys[start : start + (1 << 16)]
            there = part != 0
            self._put(part[there], values[start : start + (1 << 16)][there])

    def _home(self, keys: Keys) -> Any:
        bits = len(self._keys).bit_length() - 1
        return ((keys * _GOLDEN) >> np.uint64(64 - bits)).astype(np.int64)


class Names:
    """Names of documents by number, kept as text in blocks."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: list[bytes] = []
        self._count = 0

    def append(self, names: list[str]) -> None:
        """Put names at the end."""
        if names:
            self._starts.append(self._count)
            # A name that holds a line end would count as two.
            joined = "\n".join(name.replace("\n", " ") for name in names)
            self._blocks.append(joined.encode("utf-8", "surrogatepass"))
            self._count += len(names)

    def __getitem__(self, number: int) -> str:
        block = bisect_right(self._starts, number) - 1
        names = self._blocks[block].decode("utf-8", "surrogatepass").split("\n")
        return names[number - self._starts[block]]


def _not_zero(keys: Keys) -> Keys:
    """Zero marks a slot that is free, so it stands as another key. Who looks up compares what is found in any case."""
    zero = keys == 0
    return np.where(zero, _GOLDEN, keys) if zero.any() else keys
