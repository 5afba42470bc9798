"""The resolved shape of a model, and what follows from it by arithmetic alone. Light: no torch."""

from __future__ import annotations

from typing import Literal

import attrs

Cell = Literal["lstm", "gru"]
Pool = Literal["mean", "max", "last"]
#: What the model can be asked for, by the names of the tasks.
Purpose = Literal["lm", "classification", "tokens"]

_FLOAT = 4
_LONG = 8


@attrs.frozen(kw_only=True)
class Shape:
    """Everything that decides a model's structure.

    width: of embedding and states; two directions have half of it each. context: what generation reads at once. labels:
    how many classes there are. both: whether rows are read from both ends.
    """

    vocabulary: int
    context: int
    purpose: Purpose
    labels: int
    cell: Cell
    layers: int
    width: int
    both: bool
    dropout: float
    tie: bool
    pool: Pool
    init_std: float

    @property
    def gates(self) -> int:
        """Products of one cell: of an LSTM input, forget, cell and output, of a GRU reset, update and new."""
        return 4 if self.cell == "lstm" else 3

    @property
    def directions(self) -> int:
        """How many directions there are."""
        return 2 if self.both else 1

    @property
    def hidden(self) -> int:
        """Width of the state of one direction."""
        return self.width // self.directions

    @property
    def tied(self) -> bool:
        """Whether the head uses the embedding's weight."""
        return self.tie and self.purpose == "lm"

    def parameters(self) -> int:
        """The number of parameters, a tied one counted once."""
        direction = self.gates * self.hidden * (self.width + self.hidden + 2)
        layers = self.layers * self.directions * direction
        table = self.vocabulary * self.width
        if self.purpose == "lm":
            return table + layers + self.vocabulary + (0 if self.tied else table)
        return table + layers + (self.width + 1) * self.labels

    def activation_bytes(self, rows: int, positions: int) -> int:
        """Bytes that a float32 forward of a [rows, positions] batch and its loss keep for the backward pass.

        A layer keeps its input, and for each direction its output and what torch's function keeps: of a GRU the gates
        and states of each step, of an LSTM the workspace of its fused form on CPUs, as measured (torch 2.13). Two
        directions keep the turned input and both outputs together, too.
        """
        tokens = rows * positions
        inner = 9 * self.hidden + 6 * self.width if self.cell == "lstm" else 6 * self.hidden
        layer = self.width + self.directions * (self.hidden + inner) + (2 * self.width if self.both else 0)
        layer += self.width if self.dropout else 0
        head = {
            "lm": tokens * (self.width + self.vocabulary),
            "tokens": tokens * (self.width + self.labels),
            "classification": rows * (self.width + self.labels),
        }[self.purpose]
        return (tokens * self.layers * layer + head) * _FLOAT + tokens * 2 * _LONG
