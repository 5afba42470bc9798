"""How the workers of a run are laid out: which of them share what. Light: no torch."""

from __future__ import annotations

from collections.abc import Iterator

import attrs


@attrs.frozen
class Layout:
    """Sizes of the axes. Tensor is the innermost: workers that talk most are neighbours; then data; pipe the outermost.

    Every worker has a coordinate on each: rank = (pipe * data + d) * tensor + t, for its (pipe, d, t).
    """

    data: int = 1
    tensor: int = 1
    pipe: int = 1

    @property
    def workers(self) -> int:
        """How many there are."""
        return self.data * self.tensor * self.pipe

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a worker stands on each axis."""
        rest, tensor = divmod(rank, self.tensor)
        pipe, data = divmod(rest, self.data)
        return {"pipe": pipe, "data": data, "tensor": tensor}

    def rank(self, *, pipe: int, data: int, tensor: int) -> int:
        """The worker that stands there."""
        return (pipe * self.data + data) * self.tensor + tensor

    def lines(self, *axes: str) -> Iterator[tuple[int, ...]]:
        """Groups of workers that differ on these axes alone; every worker is in one of them."""
        seen: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.workers):
            at = self.coordinates(rank)
            seen.setdefault(tuple(at[name] for name in at if name not in axes), []).append(rank)
        return map(tuple, seen.values())

    def size(self, axis: str) -> int:
        """The number of workers along an axis."""
        return {"data": self.data, "tensor": self.tensor, "pipe": self.pipe}.get(axis, 1)

    def stream(self, rank: int) -> int:
        """Which stream of random numbers a worker draws from: those along the tensor axis compute the same outside of
        their shares, and must drop the same."""
        return rank // self.tensor

    def __str__(self) -> str:
        named = ("data", self.data), ("tensor", self.tensor), ("pipeline", self.pipe)
        return " x ".join(f"{name} {size}" for name, size in named if size > 1) or "one worker"
