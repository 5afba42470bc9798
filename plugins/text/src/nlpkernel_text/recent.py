"""Batches that are kept in memory as long as there is room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import Batch


class Recent:
    """The batches that were used last, of `limit` bytes at most. A batch that is kept must not be changed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: OrderedDict[Hashable, tuple[int, Batch]] = OrderedDict()
        self.bytes = 0

    def get(self, name: Hashable, make: Callable[[], Batch]) -> Batch:
        """The batch of this name, made where it is not there."""
        if name in self._batches:
            self._batches.move_to_end(name)
            return self._batches[name][1]
        batch = make()
        size = sum(tensor.numel() * tensor.element_size() for tensor in batch.values())
        if size > self._limit:
            return batch
        self._batches[name] = size, batch
        self.bytes += size
        while self.bytes > self._limit:
            self.bytes -= self._batches.popitem(last=False)[1][0]
        return batch
