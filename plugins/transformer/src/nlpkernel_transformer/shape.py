"""The resolved shape of a model, and what follows from it by arithmetic alone. Light: no torch."""

from __future__ import annotations

import math
from typing import Literal

import attrs

Positions = Literal["learned", "rotary"]
Norm = Literal["layer", "rms"]
Activation = Literal["gelu", "swiglu"]
Attend = Literal["sdpa", "eager"]
Logits = Literal["full", "chunked"]
Order = Literal["pre", "post"]
Pool = Literal["mean", "first", "max"]
#: What an encoder can be asked for, by the names of the tasks.
Purpose = Literal["classification", "mlm"]

_FLOAT = 4
_LONG = 8
#: Share of the positions that masked language modelling asks for.
_ASKED = 0.15


@attrs.frozen(kw_only=True)
class Shape:
    """Everything that decides a model's structure, with nothing left open.

    vocabulary: entries of the tokenizer. context: most positions of a row. width: of the residual stream. hidden: of
    the feed-forward layer. recompute: every how many-th block forgets its activations (0: none, 1: all). causal: a
    position sees those before it only. order: whether norms stand before each half of a block and behind the last, or
    behind each half and the embedding.
    """

    vocabulary: int
    context: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    hidden: int
    positions: Positions
    rope_base: float
    norm: Norm
    activation: Activation
    bias: bool
    dropout: float
    tie: bool
    attention: Attend
    logits: Logits
    init_std: float
    recompute: int
    causal: bool = True
    order: Order = "pre"

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def fused(self) -> tuple[int, int, int]:
        """Rows of the fused projection that make queries, keys and values, in this order."""
        return self.width, self.kv_heads * self.head_width, self.kv_heads * self.head_width

    @property
    def up(self) -> tuple[int, ...]:
        """Rows of the first feed-forward projection: the hidden layer, for SwiGLU after its gate."""
        return (self.hidden,) if self.activation == "gelu" else (self.hidden, self.hidden)

    @property
    def tied(self) -> bool:
        """Whether the head uses the embedding's weight."""
        return self.tie

    def parameters(self) -> int:
        """The number of parameters, a tied one counted once."""
        bias = 1 if self.bias else 0
        qkv, up = sum(self.fused), sum(self.up)
        block = 2 * self._of_norm
        block += (self.width + bias) * qkv + (self.width + bias) * self.width
        block += (self.width + bias) * up + (self.hidden + bias) * self.width
        table = self.vocabulary * self.width
        places = self.context * self.width if self.positions == "learned" else 0
        # One norm behind the last block, or one behind the embedding.
        return table + places + self.layers * block + self._of_norm + self._of_head()

    @property
    def _of_norm(self) -> int:
        return self.width * (2 if self.norm == "layer" and self.bias else 1)

    def _of_head(self) -> int:
        return 0 if self.tied else self.vocabulary * self.width

    def activation_bytes(self, rows: int, positions: int) -> int:
        """Bytes that a float32 forward of a [rows, positions] batch and its loss keep for the backward pass.

        Counted are the tensors that autograd saves, each storage once; temporaries within one operation are not.
        With recomputation one recomputed block is alive beside what is kept.
        """
        block = self._block_floats(positions)
        recomputed = -(-self.layers // self.recompute) if self.recompute else 0
        kept = (self.layers - recomputed) * block + recomputed * self.width
        floats = kept + (block if recomputed else 0)
        # The last norm keeps its input, the head its own.
        floats += 2 * self.width
        tokens = rows * positions
        return tokens * (floats * _FLOAT + 2 * _LONG) + self._head_floats(rows, positions) * _FLOAT

    def _head_floats(self, rows: int, positions: int) -> int:
        """Floats that the head keeps beside its input, and the loss."""
        return rows * positions * self.vocabulary if self.logits == "full" else 0

    def _block_floats(self, positions: int) -> int:
        """Floats that one block keeps for each token of rows with so many positions."""
        qkv = sum(self.fused)
        # Both norms keep their input, both first projections theirs.
        floats = 4 * self.width
        # Queries, keys, values; the mixed values, which the output projection keeps too.
        floats += qkv + self.width
        if self.positions == "rotary":
            # Rotated queries and keys are new tensors; the values stay in the projection's output, which is kept whole.
            floats += self.width + self.fused[1]
        if self.attention == "eager":
            floats += self.heads * positions
        # The hidden layer before and after its activation; SwiGLU's gate before and after it, and the other factor.
        floats += self.hidden * (2 if self.activation == "gelu" else 4)
        if self.dropout:
            # A mask of the shape of each output and of the probabilities, and the probabilities themselves.
            floats += 2 * self.width + 3 * self.heads * positions
        return floats


@attrs.frozen(kw_only=True)
class EncoderShape(Shape):
    """The same of an encoder. purpose: what its head is for; labels: how many classes that has; pool: how a row's
    states become one."""

    purpose: Purpose
    labels: int
    pool: Pool

    @property
    def tied(self) -> bool:
        """Whether the head uses the embedding's weight."""
        return self.tie and self.purpose == "mlm"

    def _of_head(self) -> int:
        bias = 1 if self.bias else 0
        dense = (self.width + bias) * self.width
        if self.purpose == "classification":
            return dense + (self.width + 1) * self.labels
        table = 0 if self.tied else self.vocabulary * self.width
        return dense + self._of_norm + bias * self.vocabulary + table

    def _head_floats(self, rows: int, positions: int) -> int:
        if self.purpose == "classification":
            # A row's pooled state, before and after the dense layer, and its scores.
            return rows * (2 * self.width + self.labels)
        asked = math.ceil(_ASKED * positions)
        # The states that are asked for; the dense layer, its GELU, and the norm; scores over the vocabulary.
        return rows * asked * (4 * self.width + self.vocabulary)
