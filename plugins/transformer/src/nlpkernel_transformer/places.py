"""Places that are added to the embeddings: a learned table, or a fixed one of sines (Vaswani et al., 2017).

Sines fill the first half of the width and cosines the second, as in tensor2tensor and Marian; the paper has them in
turns, which is a permutation of the width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def placed(
    x: Tensor, table: nn.Embedding | None, sinusoid: Sinusoid | None, start: int, positions: Tensor | None
) -> Tensor:
    """Embeddings x [rows, positions, width] with what is added for their places: `positions` [rows, positions], or
    those from `start` on. Neither a table nor a sinusoid: as they are."""
    if table is not None:
        return x + (table.weight[start : start + x.shape[1]] if positions is None else table(positions))
    return x if sinusoid is None else sinusoid.add(x, start, positions)


class Sinusoid:
    """The table of one model, computed when it is first needed: no buffer, as that of `Rotary`."""

    def __init__(self, width: int, context: int) -> None:
        self.width, self.context = width, context
        self._tables: dict[torch.device, Tensor] = {}

    def add(self, x: Tensor, start: int, positions: Tensor | None) -> Tensor:
        """Embeddings x [rows, positions, width] with their places: `positions` [rows, positions], or those from `start`
        on. The embeddings are multiplied by the square root of the width, to be as large as the table."""
        table = self._table(x.device)
        table = table[start : start + x.shape[1]] if positions is None else table[positions]
        return x * math.sqrt(self.width) + table.to(x.dtype)

    def _table(self, device: torch.device) -> Tensor:
        if device not in self._tables:
            # Made in an evaluation, it must still serve a training step later.
            with torch.inference_mode(False):
                self._tables[device] = self._make().to(device)
        return self._tables[device]

    def _make(self) -> Tensor:
        half = self.width // 2
        places = torch.arange(self.context, dtype=torch.float64, device="cpu")
        powers = torch.arange(half, dtype=torch.float64, device="cpu") / half
        angles = torch.outer(places, 10_000.0**-powers)
        return torch.cat((angles.sin(), angles.cos()), -1).float()
