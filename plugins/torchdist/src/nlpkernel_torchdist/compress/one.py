"""One process, maybe with the plan of several: there is nothing to compress, and what they owed is paid at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nlpkernel.engine import owed
from nlpkernel.engine.group import SingleGroup
from nlpkernel.state import Leaf

if TYPE_CHECKING:
    from nlpkernel.hookspecs.communicator import Update, Work


class One(SingleGroup):
    """A group of one worker that adds to the gradients of its first window what the workers of a version owed."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._owed: Mapping[str, Tensor] = {}

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """Pay, and keep the debt where the window is left out."""
        if not self._owed:
            return super().update(work, number, sums)
        for name, tensor in work.named:
            if name in self._owed and tensor.grad is not None:
                debt = self._owed[name].to(tensor.device)
                tensor.grad += work.precision.scale(debt) if work.precision.scaled else debt
        done = super().update(work, number, sums)
        applied = done.applied if done.applied is not None else not done.bad
        if applied:
            self._owed = {}
        return done

    def state(self) -> Mapping[str, Leaf]:
        """What is not paid yet."""
        return owed.alone(self._owed)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Owe it."""
        self._owed = owed.total(state)
