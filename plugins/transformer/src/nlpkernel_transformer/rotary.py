"""Rotary positions (Su et al., 2021): queries and keys are turned by angles that grow with the position.

A head's first half is paired with its second half (element i with element i + half), as in GPT-NeoX and the published
Llama checkpoints of transformers.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Cosines and signed sines, each [positions, 1, head width] or [rows, positions, 1, head width].
Rotation = tuple[Tensor, Tensor]


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn x [rows, positions, heads, head width]; computed in the tables' float32, returned in the dtype of x."""
    cosine, sine = rotation
    return torch.addcmul(x * cosine, x.roll(x.shape[-1] // 2, -1), sine).to(x.dtype)


class Rotary:
    """The tables of one model, computed when they are first needed.

    They are no buffers: a model that is structured on the meta device loses nothing, and no version carries them.
    """

    def __init__(self, base: float, head_width: int, context: int) -> None:
        self.base, self.head_width, self.context = base, head_width, context
        self._tables: dict[torch.device, Rotation] = {}

    def at(self, start: int, end: int, device: torch.device) -> Rotation:
        """The rotation of the positions from `start` up to `end`, the same in every row."""
        cosine, sine = self._table(device)
        return cosine[start:end], sine[start:end]

    def of(self, positions: Tensor) -> Rotation:
        """The rotation of `positions` [rows, positions]."""
        cosine, sine = self._table(positions.device)
        return cosine[positions], sine[positions]

    def _table(self, device: torch.device) -> Rotation:
        if device not in self._tables:
            # Made in an evaluation, they must still serve a training step later.
            with torch.inference_mode(False):
                self._tables[device] = self._make(device)
        return self._tables[device]

    def _make(self, device: torch.device) -> Rotation:
        # In float64 on the CPU: angles of far positions lose digits in float32, and not every device has float64.
        half = self.head_width // 2
        places = torch.arange(self.context, dtype=torch.float64, device="cpu")
        powers = torch.arange(half, dtype=torch.float64, device="cpu") / half
        angles = torch.outer(places, self.base**-powers)
        cosine, sine = angles.cos(), angles.sin()
        # The second half rolls to the front and enters the first with a minus.
        tables = torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)
        return tables[0].float().unsqueeze(1).to(device), tables[1].float().unsqueeze(1).to(device)
