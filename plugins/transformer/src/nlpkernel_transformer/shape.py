"""The resolved shape of a model, and what follows from it by arithmetic alone. Light: no torch."""

from __future__ import annotations

from typing import Literal

import attrs

Positions = Literal["learned", "rotary"]
Norm = Literal["layer", "rms"]
Activation = Literal["gelu", "swiglu"]
Attend = Literal["sdpa", "eager"]
Logits = Literal["full", "chunked"]

_FLOAT = 4
_LONG = 8


@attrs.frozen(kw_only=True)
class Shape:
    """Everything that decides a model's structure, with nothing left open.

    vocabulary: entries of the tokenizer. context: most positions of a row. width: of the residual stream. hidden: of
    the feed-forward layer. recompute: every how many-th block forgets its activations (0: none, 1: all).
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

    def parameters(self) -> int:
        """The number of parameters, a tied one counted once."""
        bias = 1 if self.bias else 0
        norm = self.width * (2 if self.norm == "layer" and self.bias else 1)
        qkv, up = sum(self.fused), sum(self.up)
        block = 2 * norm
        block += (self.width + bias) * qkv + (self.width + bias) * self.width
        block += (self.width + bias) * up + (self.hidden + bias) * self.width
        table = self.vocabulary * self.width
        places = self.context * self.width if self.positions == "learned" else 0
        return table + places + self.layers * block + norm + (0 if self.tie else table)

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
        if self.logits == "full":
            floats += self.vocabulary
        return rows * positions * (floats * _FLOAT + 2 * _LONG)

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
