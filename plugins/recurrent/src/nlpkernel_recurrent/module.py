"""The network: an embedding, recurrent layers, and the head of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_recurrent.layer import Layer, Segments, State, selected, turned_around

if TYPE_CHECKING:
    from nlpkernel_recurrent.shape import Shape


class Trunk(nn.Module):
    """From tokens to states."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.context = shape.context
        self.dropout = shape.dropout
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def embedded(self, tokens: Tensor) -> Tensor:
        """Embeddings [rows, positions, width]."""
        x = self.embedding(tokens)
        return F.dropout(x, self.dropout) if self.dropout and self.training else x


@attrs.frozen(eq=False)
class Cache:
    """What generation keeps: the state of each layer, and how many tokens were read."""

    states: list[State]
    length: int


class Writer(Trunk):
    """A language model: `forward` gives `Outputs` for training; `prefill` and `decode` generate."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.head = nn.Linear(shape.width, shape.vocabulary)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None
    ) -> Outputs:
        """Logits [rows, positions, vocabulary] for the token after each position.

        tokens: ids [rows, positions]. documents: a number for each position, same shape: a document begins from
        nothing. That costs a wait for the device, since its host must know the longest. positions: not needed, since
        the order is what is read.
        """
        segments = None if documents is None else Segments(documents)
        x = self.embedded(tokens)
        x = x if segments is None else segments.apart(x)
        for layer in self.layers:
            x = layer(x)
        return Outputs(logits=self.head(x if segments is None else segments.together(x)))

    @torch.no_grad()
    def prefill(self, tokens: Tensor, capacity: int | None = None) -> tuple[Tensor, Cache]:
        """Read a prompt [rows, positions]; return the logits after its last token [rows, vocabulary], and the cache.

        capacity: of no meaning here: a state has one size, however long the text.
        """
        return self._read(tokens, [None] * len(self.layers), 0)

    @torch.no_grad()
    def decode(self, tokens: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Read one or more further tokens [rows, new]; return the logits after the last [rows, vocabulary], and a new
        cache."""
        return self._read(tokens, list(cache.states), cache.length)

    def select(self, cache: Cache, rows: Tensor) -> Cache:
        """The cache of these rows [count], int64, each as often as it comes."""
        return Cache(selected(cache.states, rows), cache.length)

    def _read(self, tokens: Tensor, states: list[State | None], length: int) -> tuple[Tensor, Cache]:
        x, made = self.embedded(tokens), []
        for layer, state in zip(self.layers, states, strict=True):
            x, state = layer.step(x, state)  # type: ignore[operator]
            made.append(state)
        return self.head(x[:, -1]), Cache(made, length + tokens.shape[1])


class Labeller(Trunk):
    """Classifies rows, or each of their tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.both, self.hidden = shape.both, shape.hidden
        self.pool = shape.pool if shape.purpose == "classification" else None
        self.head = nn.Linear(shape.width, shape.labels)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Outputs:
        """Logits of each row's classes [rows, classes], or of each token's [rows, positions, classes].

        tokens: ids [rows, positions]. lengths: how many of each row are no padding, [rows]; left out: all.
        """
        rows, width = tokens.shape
        if lengths is None:
            lengths = torch.full((rows,), width, device=tokens.device)
        turned = turned_around(lengths, width) if self.both else None
        x = self.embedded(tokens)
        for layer in self.layers:
            x = layer(x, turned)
        return Outputs(logits=self.head(x if self.pool is None else self._pooled(x, lengths)))

    def _pooled(self, x: Tensor, lengths: Tensor) -> Tensor:
        # A row of nothing but padding keeps its first position.
        lengths = lengths.clamp(min=1)
        if self.pool == "last":
            last = x[torch.arange(len(x), device=x.device), lengths - 1]
            # The second direction ends where the row begins.
            return torch.cat((last[:, : self.hidden], x[:, 0, self.hidden :]), -1) if self.both else last
        real = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
        if self.pool == "max":
            return x.masked_fill(~real, float("-inf")).amax(dim=1)
        return (x * real).sum(dim=1) / lengths[:, None]
