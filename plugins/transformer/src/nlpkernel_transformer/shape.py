"""The resolved shape of a model, and what follows from it by arithmetic alone. Light: no torch."""

from __future__ import annotations

import math
from typing import Literal

import attrs

from nlpkernel import setting, settings

Positions = Literal["learned", "rotary", "sinusoidal"]
Norm = Literal["layer", "rms"]
Activation = Literal["gelu", "relu", "swiglu"]
Attend = Literal["sdpa", "eager"]
Logits = Literal["full", "chunked"]
Order = Literal["pre", "post"]
Pool = Literal["mean", "first", "max"]
#: What an encoder can be asked for, by the names of the tasks.
Purpose = Literal["classification", "mlm", "tokens", "pairs"]
#: The task of models of images and texts.
IMAGE_TEXT = "image-text"
Towers = Literal["shared", "separate"]


@settings
class Sparse:
    """Blocks of positions that attention is limited to."""

    block: int = setting(default=64, ge=1, help="positions of a block")
    local: int = setting(
        default=4,
        ge=1,
        help="blocks that a position sees around itself: its own and those before it; of encoders, half as many on "
        "each side of its own",
    )
    first: int = setting(
        default=1,
        ge=0,
        help="blocks at the beginning of the row that every position sees; of encoders, they see the whole row, too",
    )


_FLOAT = 4
_LONG = 8
#: Share of the positions that masked language modelling asks for.
_ASKED = 0.15


@attrs.frozen(kw_only=True)
class Shape:
    """Everything that decides a model's structure, with nothing left open.

    vocabulary: entries of the tokenizer. context: most positions of a row. width: of the residual stream. hidden: of
    the feed-forward layer. recompute: every how many-th block forgets its activations (0: none, 1: all). causal: a
    position sees those before it only. span, sparse: which positions it sees at all (`patterns`). order: whether norms
    stand before each half of a block and behind the last, or behind each half and the embedding.
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
    span: int | None = None
    sparse: Sparse | None = None
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
        return (self.hidden, self.hidden) if self.activation == "swiglu" else (self.hidden,)

    @property
    def tied(self) -> bool:
        """Whether the head uses the embedding's weight."""
        return self.tie

    @property
    def copies(self) -> int:
        """How many chunks of queries get a copy of one key; 0 without a pattern."""
        if self.span is not None:
            return 2 if self.causal else 3
        if self.sparse is None:
            return 0
        local = self.sparse.local if self.causal else self.sparse.local // 2 * 2 + 1
        return local + self.sparse.first

    def parameters(self) -> int:
        """The number of parameters, a tied one counted once."""
        block = self._of_block()
        table = self.vocabulary * self.width
        places = self.context * self.width if self.positions == "learned" else 0
        # One norm behind the last block, or one behind the embedding.
        return table + places + self.layers * block + self._of_norm + self._of_head()

    def _of_block(self) -> int:
        bias = 1 if self.bias else 0
        qkv, up = sum(self.fused), sum(self.up)
        block = 2 * self._of_norm
        block += (self.width + bias) * qkv + (self.width + bias) * self.width
        return block + (self.width + bias) * up + (self.hidden + bias) * self.width

    def narrow(self, name: str) -> float:
        """Standard deviation of the first values of a matrix that writes into the residual stream, by its name.

        With norms first it is `init_std` over the square root of how many of them add up (Radford et al., 2019).
        """
        return self.init_std / math.sqrt(self._writers(name)) if self.order == "pre" else self.init_std

    def _writers(self, name: str) -> int:
        """How many matrices write into the stream that the matrix of this name does."""
        return 2 * self.layers

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
        if self.copies and self.attention == "sdpa":
            # The queries once more, in chunks; keys and values as often as chunks look at them, and not themselves.
            floats += self.width + (self.copies - 1) * sum(self.fused[1:])
        elif self.positions == "rotary":
            # Rotated queries and keys are new tensors; the values stay in the projection's output, which is kept whole.
            floats += self.width + self.fused[1]
        if self.attention == "eager":
            floats += self.heads * positions
        # The hidden layer before and after its activation (of ReLU, after it alone); SwiGLU's gate before and after it,
        # and the other factor.
        floats += self.hidden * {"relu": 1, "gelu": 2, "swiglu": 4}[self.activation]
        if self.dropout:
            # A mask of the shape of each output and of the probabilities, and the probabilities themselves.
            floats += 2 * self.width + 3 * self.heads * positions
        return floats


@attrs.frozen(kw_only=True)
class EncoderShape(Shape):
    """The same of an encoder. purpose: what its head is for; labels: how many classes that has; pool: how a row's
    states become one; towers: whether the two texts of a pair go through the same weights; scaled: whether the scale of
    their likeness is learnt."""

    purpose: Purpose
    labels: int
    pool: Pool
    towers: Towers = "shared"
    scaled: bool = False

    @property
    def tied(self) -> bool:
        """Whether the head uses the embedding's weight."""
        return self.tie and self.purpose == "mlm"

    @property
    def apart(self) -> bool:
        """Whether there are two towers of weights."""
        return self.purpose == "pairs" and self.towers == "separate"

    def parameters(self) -> int:
        """The number of parameters, a tied one counted once."""
        return super().parameters() + (super().parameters() - self._of_head() if self.apart else 0)

    def activation_bytes(self, rows: int, positions: int) -> int:
        """Bytes that a float32 forward of a [rows, positions] batch and its loss keep, counted as for a decoder. Of
        pairs there are two such texts; the rows of both go through all blocks of towers of their own."""
        if self.purpose != "pairs":
            return super().activation_bytes(rows, positions)
        twice = super().activation_bytes(2 * rows, positions)
        return twice + (2 * self.layers * rows * positions * self.width * _FLOAT if self.apart else 0)

    def _of_head(self) -> int:
        bias = 1 if self.bias else 0
        classes = (self.width + 1) * self.labels
        dense = (self.width + bias) * self.width
        if self.purpose == "pairs":
            return int(self.scaled)
        if self.purpose == "tokens":
            return classes
        if self.purpose == "classification":
            return dense + classes
        table = 0 if self.tied else self.vocabulary * self.width
        return dense + self._of_norm + bias * self.vocabulary + table

    def _head_floats(self, rows: int, positions: int) -> int:
        if self.purpose == "pairs":
            # Pooled states.
            return rows * self.width
        if self.purpose == "tokens":
            return rows * positions * self.labels
        if self.purpose == "classification":
            # A row's pooled state, before and after the dense layer, and its scores.
            return rows * (2 * self.width + self.labels)
        asked = math.ceil(_ASKED * positions)
        # The states that are asked for; the dense layer, its GELU, and the norm; scores over the vocabulary.
        return rows * asked * (4 * self.width + self.vocabulary)


@attrs.frozen(kw_only=True)
class PairShape(Shape):
    """The same of an encoder-decoder. layers: blocks of the encoder; decoder_layers: of the decoder."""

    decoder_layers: int

    def _writers(self, name: str) -> int:
        return 3 * self.decoder_layers if name.startswith("decoder.") else 2 * self.layers

    def parameters(self) -> int:
        """The number of parameters, a tied one counted once."""
        bias = 1 if self.bias else 0
        places = 2 * self.context * self.width if self.positions == "learned" else 0
        block = self._of_block()
        cross = self._of_norm + (self.width + bias) * (2 * self.width + sum(self.fused[1:]))
        norms = 2 * self._of_norm if self.order == "pre" else 0
        blocks = self.layers * block + self.decoder_layers * (block + cross)
        return self.vocabulary * self.width + places + blocks + norms + self._of_head()

    def activation_bytes(self, rows: int, positions: int) -> int:
        """Bytes that a float32 forward of sources and targets [rows, positions] and its loss keep for the backward
        pass, counted as for a decoder."""
        own = self._block_floats(positions)
        kv = sum(self.fused[1:])
        # What goes through a block beside its own text is kept with that.
        encoder = own + self.width
        # Both norms' inputs; queries, keys, values, the mixed values.
        decoder = own + self.width + 2 * self.width + 2 * self.width + kv
        if self.attention == "eager":
            decoder += self.heads * positions
        if self.dropout:
            decoder += self.width + 3 * self.heads * positions
        floats = 0
        for layers, block in ((self.layers, encoder), (self.decoder_layers, decoder)):
            recomputed = -(-layers // self.recompute) if self.recompute else 0
            floats += (layers - recomputed) * block + recomputed * 2 * self.width
        if self.recompute:
            floats += max(encoder, decoder)
        floats += 4 * self.width
        tokens = rows * positions
        return tokens * (floats * _FLOAT + 3 * _LONG) + self._head_floats(rows, positions) * _FLOAT
