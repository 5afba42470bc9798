"""The plain precision, which others build on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


class PlainPrecision:
    """float32 throughout; what another precision does not change, it takes from here."""

    name = "fp32"
    parameter = reduce = output = torch.float32
    scaled = False
    _context: AbstractContextManager[Any] = nullcontext()

    def autocast(self) -> AbstractContextManager[Any]:
        """Nothing is cast."""
        return self._context

    def scale(self, loss: Tensor) -> Tensor:
        """The loss as it is."""
        return loss

    def unscale(self, gradients: Iterable[Tensor]) -> None:
        """Nothing was scaled."""

    def observe(self, bad: bool) -> None:
        """There is no scale to adapt."""

    def state(self) -> Mapping[str, Any]:
        """Nothing to remember."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""
