"""The encoder-decoder: one text is read whole, and a second one is written by a decoder that looks at its states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_transformer.attention import Attention, Cross
from nlpkernel_transformer.cache import PairCache
from nlpkernel_transformer.module import Block, Mlp, mask_after, norm_of, padding_mask, replaced
from nlpkernel_transformer.patterns import pattern_of
from nlpkernel_transformer.places import Sinusoid, placed
from nlpkernel_transformer.rotary import Rotary

if TYPE_CHECKING:
    from nlpkernel_transformer.cache import LayerCache, Memory
    from nlpkernel_transformer.rotary import Rotation
    from nlpkernel_transformer.shape import PairShape


class DecoderBlock(nn.Module):
    """Self-attention, attention to the source, and the feed-forward layer, with norms before or behind as in `Block`.

    Its hidden state is both texts, one behind the other: so whatever cuts a model between blocks carries the source
    along. The source goes through as it is.
    """

    def __init__(self, shape: PairShape, recompute: bool) -> None:
        super().__init__()
        self.attention_norm = norm_of(shape)
        self.attention = Attention(shape)
        self.cross_norm = norm_of(shape)
        self.cross = Cross(shape)
        self.mlp_norm = norm_of(shape)
        self.mlp = Mlp(shape)
        self.dropout = shape.dropout
        self.behind = shape.order == "post"
        self.recompute = recompute

    def forward(self, x: Tensor, source: int, rotation: Rotation | None, real: Tensor | None) -> Tensor:
        """x [rows, source + target, width] to the same shape. real: which positions of the source are no padding,
        [rows, 1, 1, source]."""
        states, own = x[:, :source], x[:, source:]
        if self.recompute and torch.is_grad_enabled():
            own = checkpoint(self._run, own, states, rotation, real, use_reentrant=False)
        else:
            own = self._run(own, states, rotation, real)
        return torch.cat((states, own), 1)

    def _run(self, x: Tensor, states: Tensor, rotation: Rotation | None, real: Tensor | None) -> Tensor:
        return self.step(x, self.cross.memory(states), rotation, real)

    def step(
        self,
        x: Tensor,
        memory: Memory,
        rotation: Rotation | None,
        real: Tensor | None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """x [rows, target, width] to the same shape, with keys and values of the source. mask, cache: of the
        self-attention."""
        if self.behind:
            x = self.attention_norm(x + self._dropped(self.attention(x, rotation, mask, cache)))
            x = self.cross_norm(x + self._dropped(self.cross(x, memory, real)))
            return self.mlp_norm(x + self._dropped(self.mlp(x)))  # type: ignore[no-any-return]
        x = x + self._dropped(self.attention(self.attention_norm(x), rotation, mask, cache))
        x = x + self._dropped(self.cross(self.cross_norm(x), memory, real))
        return x + self._dropped(self.mlp(self.mlp_norm(x)))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.dropout and self.training else x


class EncoderDecoder(nn.Module):
    """A Transformer as it was first described (Vaswani et al., 2017), with one embedding for both texts.

    `forward` gives `Outputs` for training; `encode`, `decode` and `select` write with a cache. Both texts have at most
    `context` positions.
    """

    def __init__(self, shape: PairShape) -> None:
        super().__init__()
        self.context = shape.context
        self.dropout = shape.dropout
        self.pattern = pattern_of(shape)
        self.chunked = shape.logits == "chunked"
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        learned = shape.positions == "learned"
        self.positions = nn.Embedding(shape.context, shape.width) if learned else None
        self.target_positions = nn.Embedding(shape.context, shape.width) if learned else None
        self.rotary = (
            Rotary(shape.rope_base, shape.head_width, shape.context) if shape.positions == "rotary" else None
        )
        self.sinusoid = Sinusoid(shape.width, shape.context) if shape.positions == "sinusoidal" else None
        # Registered in the order of the forward pass, by which layouts go.
        every = shape.recompute
        both = attrs.evolve(shape, causal=False)
        self.encoder = nn.ModuleList(
            Block(both, recompute=bool(every) and index % every == 0) for index in range(shape.layers)
        )
        self.source_norm = norm_of(shape) if shape.order == "pre" else None
        self.decoder = nn.ModuleList(
            DecoderBlock(shape, recompute=bool(every) and index % every == 0)
            for index in range(shape.decoder_layers)
        )
        self.norm = norm_of(shape) if shape.order == "pre" else None
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, *, target: Tensor) -> Outputs:
        """Logits for the token after each position of the target.

        tokens: ids of the source [rows, positions]. lengths: how many of each row are no padding, [rows]; left out:
        all. target: ids that the decoder reads [rows, t]; what is behind its end is seen by nothing before it. Returns
        `Outputs` with logits [rows, t, vocabulary], or with hidden states and the head's weight where the setting
        `logits` is "chunked". Raise ValueError for rows longer than `context`.
        """
        source, length = tokens.shape[1], target.shape[1]
        mask, real = self._masks(tokens, lengths)
        # One after the other, as a hidden state of both.
        x = torch.cat(
            (self._embedded(tokens, self.positions, 0), self._embedded(target, self.target_positions, 0)), 1
        )
        rotation, part = self._rotation(0, source, tokens.device), (1, 0, source)
        for block in self.encoder:
            x = block(x, rotation, mask, None, part)
        if self.source_norm is not None:
            x = replaced(x, part, self.source_norm(x[:, :source]))
        rotation = self._rotation(0, length, tokens.device)
        for block in self.decoder:
            x = block(x, source, rotation, real)
        x = x[:, source:]
        x = x if self.norm is None else self.norm(x)
        return Outputs(hidden=x, head=self.head.weight) if self.chunked else Outputs(logits=self.head(x))

    @torch.no_grad()
    def encode(self, tokens: Tensor, lengths: Tensor | None = None, capacity: int | None = None) -> PairCache:
        """Read a source [rows, positions]; return a cache in which each block has its keys and values.

        lengths: how many of each row are no padding. capacity: most positions of the target; left out: `context`.
        Raise ValueError where either is more than `context`.
        """
        capacity = self.context if capacity is None else capacity
        self._fits(capacity)
        mask, real = self._masks(tokens, lengths)
        x = self._embedded(tokens, self.positions, 0)
        rotation = self._rotation(0, tokens.shape[1], tokens.device)
        for block in self.encoder:
            x = block(x, rotation, mask)
        x = x if self.source_norm is None else self.source_norm(x)
        return PairCache([block.cross.memory(x) for block in self.decoder], real, capacity)  # type: ignore[union-attr, operator]

    @torch.no_grad()
    def decode(self, tokens: Tensor, cache: PairCache) -> tuple[Tensor, PairCache]:
        """Read one or more further tokens of the target [rows, new]; return the logits after the last
        [rows, vocabulary].

        The cache is extended in place and returned. Raise ValueError where it has no room.
        """
        new = tokens.shape[1]
        start = cache.take(new)
        mask = mask_after(start, new, self.pattern, tokens.device)
        x = self._embedded(tokens, self.target_positions, start)
        rotation = self._rotation(start, start + new, tokens.device)
        for block, memory, layer in zip(self.decoder, cache.memories, cache.layers, strict=True):
            x = block.step(x, memory, rotation, cache.real, mask, layer)  # type: ignore[operator]
        x = x[:, -1]
        return self.head(x if self.norm is None else self.norm(x)), cache

    def select(self, cache: PairCache, rows: Tensor) -> PairCache:
        """A cache of its own with these rows [count], int64, each as often as it comes."""
        return cache.select(rows)

    def _fits(self, length: int) -> None:
        if length > self.context:
            raise ValueError(f"{length} positions are more than this model's context of {self.context}")

    def _masks(self, tokens: Tensor, lengths: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """For the source's attention to itself, and for the target's to it."""
        if lengths is None:
            return None, None
        wide = tokens.shape[1]
        return padding_mask(lengths, wide, self.pattern), padding_mask(lengths, wide, None)

    def _rotation(self, start: int, end: int, device: torch.device) -> Rotation | None:
        return None if self.rotary is None else self.rotary.at(start, end, device)

    def _embedded(self, tokens: Tensor, positions: nn.Embedding | None, start: int) -> Tensor:
        """Embeddings with their places [rows, positions, width]."""
        self._fits(start + tokens.shape[1])
        x = placed(self.embedding(tokens), positions, self.sinusoid, start, None)
        return F.dropout(x, self.dropout) if self.dropout and self.training else x
