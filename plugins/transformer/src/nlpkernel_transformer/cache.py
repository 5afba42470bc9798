"""What generation keeps: keys and values of the positions seen so far, in memory that is taken once."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

#: Keys and values of one block, each [rows, kv heads, positions, head width].
Memory = tuple[Tensor, Tensor]


class LayerCache:
    """Keys and values of one block, each [rows, kv heads, capacity, head width], taken at the first use."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> Memory:
        """Add k, v [rows, kv heads, new, head width]; return views of all keys and values so far."""
        if self._keys is None or self._values is None:
            rows, heads, _, width = k.shape
            self._keys = k.new_empty(rows, heads, self.capacity, width)
            self._values = v.new_empty(rows, heads, self.capacity, width)
        start, self.length = self.length, self.length + k.shape[2]
        self._keys[:, :, start : self.length] = k
        self._values[:, :, start : self.length] = v
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def select(self, rows: Tensor) -> LayerCache:
        """A cache of its own with these rows [count] of this one, each as often as it comes."""
        made = LayerCache(self.capacity)
        if self._keys is not None and self._values is not None:
            keys, values = self._keys[:, :, : self.length], self._values[:, :, : self.length]
            made.extend(keys.index_select(0, rows), values.index_select(0, rows))
        return made


class Cache:
    """The caches of all blocks. It is changed in place by each `decode`."""

    def __init__(self, layers: int, capacity: int) -> None:
        self.capacity = capacity
        self.layers = [LayerCache(capacity) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Positions held."""
        return self.layers[0].length

    def take(self, new: int) -> int:
        """Check that `new` more positions fit; return how many are held. Raise ValueError where they do not."""
        if self.length + new > self.capacity:
            raise ValueError(
                f"the cache holds {self.length} of {self.capacity} positions; {new} more do not fit"
            )
        return self.length

    def select(self, rows: Tensor) -> Cache:
        """A cache of its own with these rows [count] of this one, each as often as it comes."""
        made = Cache(0, self.capacity)
        made.layers = [layer.select(rows) for layer in self.layers]
        return made


class PairCache(Cache):
    """The same of a decoder that reads a first text, with what it needs of that: for each block keys and values of the
    source, and which of its positions are no padding, [rows, 1, 1, positions]."""

    def __init__(self, memories: Sequence[Memory], real: Tensor | None, capacity: int) -> None:
        super().__init__(len(memories), capacity)
        self.memories, self.real = list(memories), real

    def select(self, rows: Tensor) -> PairCache:
        """A cache of its own with these rows [count] of this one, each as often as it comes."""
        memories = [(k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.memories]
        real = None if self.real is None else self.real.index_select(0, rows)
        made = PairCache(memories, real, self.capacity)
        made.layers = [layer.select(rows) for layer in self.layers]
        return made
