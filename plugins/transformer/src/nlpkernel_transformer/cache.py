"""What generation keeps: keys and values of the positions seen so far, in memory that is taken once."""

from __future__ import annotations

from torch import Tensor


class LayerCache:
    """Keys and values of one block, each [rows, kv heads, capacity, head width], taken at the first use."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v [rows, kv heads, new, head width]; return views of all keys and values so far."""
        if self._keys is None or self._values is None:
            rows, heads, _, width = k.shape
            self._keys = k.new_empty(rows, heads, self.capacity, width)
            self._values = v.new_empty(rows, heads, self.capacity, width)
        start, self.length = self.length, self.length + k.shape[2]
        self._keys[:, :, start : self.length] = k
        self._values[:, :, start : self.length] = v
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]


class Cache:
    """The caches of all blocks. It is changed in place by each `decode`."""

    def __init__(self, layers: int, capacity: int) -> None:
        self.capacity = capacity
        self.layers = [LayerCache(capacity) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Positions held."""
        return self.layers[0].length
