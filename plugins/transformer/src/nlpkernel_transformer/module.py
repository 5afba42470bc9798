"""The network: what all components of this package consist of, and the decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_transformer.attention import Attention
from nlpkernel_transformer.cache import Cache
from nlpkernel_transformer.patterns import pattern_of
from nlpkernel_transformer.places import Sinusoid, placed
from nlpkernel_transformer.rotary import Rotary

if TYPE_CHECKING:
    from nlpkernel_transformer.cache import LayerCache
    from nlpkernel_transformer.patterns import Pattern
    from nlpkernel_transformer.rotary import Rotation
    from nlpkernel_transformer.shape import Shape

#: Of both norms, as in GPT-2 and Llama.
EPSILON = 1e-5

#: The part of a hidden state that a block is for: along which dimension, from where on, how much of it.
Part = tuple[int, int, int]


def norm_of(shape: Shape) -> nn.Module:
    """A norm of this kind and width."""
    if shape.norm == "rms":
        return nn.RMSNorm(shape.width, eps=EPSILON)
    return nn.LayerNorm(shape.width, eps=EPSILON, bias=shape.bias)


def replaced(x: Tensor, part: Part, new: Tensor) -> Tensor:
    """x with `new` in the place of one part of it."""
    dimension, start, length = part
    end = start + length
    around = x.narrow(dimension, 0, start), x.narrow(dimension, end, x.shape[dimension] - end)
    return torch.cat((around[0], new, around[1]), dimension)


def real_of(lengths: Tensor, width: int) -> Tensor:
    """What is no padding, [rows, width]. A row of nothing but padding keeps its first position: a softmax over nothing
    is not a number."""
    return torch.arange(width, device=lengths.device) < lengths.clamp(min=1)[:, None]


def padding_mask(lengths: Tensor, width: int, pattern: Pattern | None) -> Tensor:
    """The mask of a self-attention to both sides that sees no padding; with a pattern, the groups of the positions."""
    real = real_of(lengths, width)
    return real if pattern is not None else real[:, None, None, :]


def mask_after(start: int, new: int, pattern: Pattern | None, device: torch.device) -> Tensor | None:
    """The mask of `new` queries of a decoder behind `start` cached positions."""
    if start and pattern is not None:
        return pattern.after(start, new, device)
    if start and new > 1:
        return torch.ones(new, start + new, dtype=torch.bool, device=device).tril(start)
    return None


class Mlp(nn.Module):
    """The feed-forward layer of one block: GELU in its exact form, ReLU, or SwiGLU (Shazeer, 2020).

    For SwiGLU `up` makes the gate and the other factor in one projection, the gate's rows first (`Shape.up`).
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, sum(shape.up), bias=shape.bias)
        self.down = nn.Linear(shape.hidden, shape.width, bias=shape.bias)
        self.gated = shape.activation == "swiglu"
        self.activate = F.relu if shape.activation == "relu" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        """x [rows, positions, width] to the same shape."""
        if self.gated:
            gate, factor = self.up(x).chunk(2, dim=-1)
            return self.down(F.silu(gate) * factor)  # type: ignore[no-any-return]
        return self.down(self.activate(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); with norms behind, norm(x + attention(x)), then norm(x + mlp(x)).

    With `recompute` its activations are forgotten in the forward pass and computed again, with the same random draws,
    in the backward pass. The block does this itself, so that whatever wraps a block (sharding, say) stays outside.
    """

    def __init__(self, shape: Shape, recompute: bool) -> None:
        super().__init__()
        self.attention_norm = norm_of(shape)
        self.attention = Attention(shape)
        self.mlp_norm = norm_of(shape)
        self.mlp = Mlp(shape)
        self.dropout = shape.dropout
        self.behind = shape.order == "post"
        self.recompute = recompute

    def forward(
        self,
        x: Tensor,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        part: Part | None = None,
    ) -> Tensor:
        """x [rows, positions, width] to the same shape. `mask`, `rotation` and `cache` are the attention's. With `part`
        the rest of x goes through as it is: so a model of two texts has one hidden state, and can be cut anywhere."""
        if part is not None:
            return replaced(x, part, self.forward(x.narrow(*part), rotation, mask, cache))
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._run, x, rotation, mask, cache, use_reentrant=False)  # type: ignore[no-any-return]
        return self._run(x, rotation, mask, cache)

    def _run(
        self, x: Tensor, rotation: Rotation | None, mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        if self.behind:
            x = self.attention_norm(x + self._dropped(self.attention(x, rotation, mask, cache)))
            return self.mlp_norm(x + self._dropped(self.mlp(x)))  # type: ignore[no-any-return]
        x = x + self._dropped(self.attention(self.attention_norm(x), rotation, mask, cache))
        return x + self._dropped(self.mlp(self.mlp_norm(x)))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.dropout and self.training else x


class Trunk(nn.Module):
    """From tokens to states: embedding, places and blocks, with the norms around them. A row holds at most `context`
    positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.context = shape.context
        self.dropout = shape.dropout
        self.pattern = pattern_of(shape)
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width) if shape.positions == "learned" else None
        self.rotary = (
            Rotary(shape.rope_base, shape.head_width, shape.context) if shape.positions == "rotary" else None
        )
        self.sinusoid = Sinusoid(shape.width, shape.context) if shape.positions == "sinusoidal" else None
        # Registered in the order of the forward pass, by which layouts go.
        self.embedding_norm = norm_of(shape) if shape.order == "post" else None
        every = shape.recompute
        self.blocks = nn.ModuleList(
            Block(shape, recompute=bool(every) and index % every == 0) for index in range(shape.layers)
        )
        self.norm = norm_of(shape) if shape.order == "pre" else None

    def _fits(self, length: int) -> None:
        if length > self.context:
            raise ValueError(f"{length} positions are more than this model's context of {self.context}")

    def _states(
        self, tokens: Tensor, positions: Tensor | None, start: int, mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """The normalised last hidden states [rows, positions, width]; positions count from `start` if not given."""
        end = start + tokens.shape[1]
        x = placed(self.embedding(tokens), self.positions, self.sinusoid, start, positions)
        rotation = None
        if self.rotary is not None:
            rotation = (
                self.rotary.at(start, end, tokens.device) if positions is None else self.rotary.of(positions)
            )
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        if self.dropout and self.training:
            x = F.dropout(x, self.dropout)
        for index, block in enumerate(self.blocks):
            x = block(x, rotation, mask, None if cache is None else cache.layers[index])
        return x if self.norm is None else self.norm(x)


class Transformer(Trunk):
    """A decoder-only language model: `forward` gives `Outputs` for training; `prefill` and `decode` generate with a
    cache."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.chunked = shape.logits == "chunked"
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None
    ) -> Outputs:
        """Logits for the token after each position.

        tokens: ids [rows, positions]. positions: the place of each token in its document, same shape; left out: its
        place in the row. documents: a number for each position, same shape; a token sees only tokens before it that
        have its own number. Returns `Outputs` with logits [rows, positions, vocabulary], or with hidden states and the
        head's weight where the setting `logits` is "chunked". Raise ValueError for rows longer than `context`.
        """
        self._fits(tokens.shape[1])
        mask = None
        if documents is not None:
            mask = documents
            if self.pattern is None:
                mask = (documents[:, :, None] == documents[:, None, :]).tril().unsqueeze(1)
        x = self._states(tokens, positions, 0, mask, None)
        if self.chunked:
            return Outputs(hidden=x, head=self.head.weight)
        return Outputs(logits=self.head(x))

    @torch.no_grad()
    def prefill(self, tokens: Tensor, capacity: int | None = None) -> tuple[Tensor, Cache]:
        """Read a prompt [rows, positions]; return the logits after its last token [rows, vocabulary], and the cache.

        capacity: positions that the cache has memory for; left out: `context`. Raise ValueError where the prompt does
        not fit.
        """
        capacity = self.context if capacity is None else capacity
        self._fits(capacity)
        return self.decode(tokens, Cache(len(self.blocks), capacity))

    @torch.no_grad()
    def decode(self, tokens: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Read one or more further tokens [rows, new]; return the logits after the last [rows, vocabulary].

        The cache is extended in place and returned. Raise ValueError where it has no room.
        """
        new = tokens.shape[1]
        start = cache.take(new)
        mask = mask_after(start, new, self.pattern, tokens.device)
        x = self._states(tokens, None, start, mask, cache)
        return self.head(x[:, -1]), cache

    def select(self, cache: Cache, rows: Tensor) -> Cache:
        """A cache of its own with these rows [count], int64, each as often as it comes."""
        return cache.select(rows)
