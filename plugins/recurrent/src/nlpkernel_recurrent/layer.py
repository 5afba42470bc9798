"""One recurrent layer, in one or two directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from nlpkernel_recurrent.shape import Shape

#: What a direction is in after a step: hidden and, of an LSTM, cell state, each [1, rows, hidden].
State = tuple[Tensor, ...]


class Direction(nn.Module):
    """The weights of one direction, as `torch.nn.LSTM` and `torch.nn.GRU` have them: a row for each gate's unit, one
    gate after the other.

    They are given to torch's function one by one, and not held in a `torch.nn.LSTM`: that keeps a list of its own of
    tensors that a layout puts others in the place of.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        rows, self.hidden = shape.gates * shape.hidden, shape.hidden
        self.lstm = shape.cell == "lstm"
        self.weight_ih = nn.Parameter(torch.empty(rows, shape.width))
        self.weight_hh = nn.Parameter(torch.empty(rows, shape.hidden))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.bias_hh = nn.Parameter(torch.empty(rows))

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """x [rows, positions, width] to [rows, positions, hidden], from `state` (left out: zeros), and the state behind
        the last position."""
        if state is None:
            zeros = x.new_zeros(1, x.shape[0], self.hidden)
            state = (zeros, zeros) if self.lstm else (zeros,)
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        # With biases, one layer, no dropout, training or not, one direction, rows first.
        options = (True, 1, 0.0, self.training, False, True)
        if self.lstm:
            out, hidden, cell = torch.lstm(x, state, weights, *options)
            return out, (hidden, cell)
        out, hidden = torch.gru(x, state[0], weights, *options)
        return out, (hidden,)


class Layer(nn.Module):
    """A layer: one direction, or two, whose states are one behind the other."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ahead = Direction(shape)
        self.back = Direction(shape) if shape.both else None
        self.dropout = shape.dropout

    def forward(self, x: Tensor, turned: Tensor | None = None) -> Tensor:
        """x [rows, positions, width] to the same shape.

        turned: for each place the one that the second direction reads there, [rows, positions] (`turned_around`).
        """
        out, _ = self.ahead(x)
        if self.back is not None and turned is not None:
            behind, _ = self.back(_picked(x, turned))
            out = torch.cat((out, _picked(behind, turned)), -1)
        return self.dropped(out)

    def step(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Go on from a state: x [rows, new, width] to the same shape, and the state behind it. Forward only."""
        out, state = self.ahead(x, state)
        return self.dropped(out), state

    def dropped(self, x: Tensor) -> Tensor:
        """x with dropout, in training."""
        return F.dropout(x, self.dropout) if self.dropout and self.training else x


def turned_around(lengths: Tensor, width: int) -> Tensor:
    """Places in the opposite order, [rows, width], that of padding unchanged. Its own inverse."""
    places = torch.arange(width, device=lengths.device)[None]
    return torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)


def _picked(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


class Segments:
    """Documents that share rows, each as a row of its own, since the state must not go from one to the next."""

    def __init__(self, documents: Tensor) -> None:
        rows, width = documents.shape
        begins = torch.ones_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        flat = begins.flatten()
        places = torch.arange(rows * width, device=documents.device)
        self._shape = rows, width
        self._row = flat.cumsum(0) - 1
        starts = places[flat]
        self._place = places - starts[self._row]
        self._size = len(starts), int(self._place.max()) + 1

    def apart(self, x: Tensor) -> Tensor:
        """x [rows, positions, width] as [documents, longest, width], zeros behind."""
        made = x.new_zeros(*self._size, x.shape[-1])
        return made.index_put((self._row, self._place), x.flatten(0, 1))

    def together(self, x: Tensor) -> Tensor:
        """The inverse."""
        return x[self._row, self._place].view(*self._shape, -1)


def selected(states: Sequence[State], rows: Tensor) -> list[State]:
    """These rows [count] of the states, each as often as it comes."""
    return [tuple(each.index_select(1, rows) for each in state) for state in states]
