"""The rate over a run: a rise, and then the peak for ever. Light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Rise:
    """Update t (from 1) of the first `warmup` has the part t / warmup of the peak, every later one all of it."""

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup

    def factor(self, update: int) -> float:
        """The part of the peak for the update number `update`, from 0."""
        return min(1.0, (update + 1) / self._warmup) if self._warmup else 1.0

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Metrics change nothing."""

    def state(self) -> Mapping[str, Any]:
        """The part is a function of the update."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""
