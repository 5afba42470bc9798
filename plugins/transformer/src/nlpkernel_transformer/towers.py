"""Two texts that are compared: each becomes one vector, by the same weights or by two towers of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_transformer.encoder import pooled
from nlpkernel_transformer.module import Block, Trunk, norm_of, padding_mask, replaced
from nlpkernel_transformer.places import placed

if TYPE_CHECKING:
    from nlpkernel_transformer.rotary import Rotation
    from nlpkernel_transformer.shape import EncoderShape

#: The scale of CLIP (Radford et al., 2021): what is learnt is the logarithm, which begins here, and the scale itself is
#: at most so much.
FIRST_SCALE = math.log(1 / 0.07)
MOST_SCALE = 100.0


class Scale(nn.Module):
    """What likeness is multiplied by. A module of its own, since its place in the order of registration says when it is
    used; of one element and not of none, since layouts that divide parameters know no scalars."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1))

    def forward(self) -> Tensor:
        """The scale, of 0 dimensions."""
        return self.weight.exp().clamp(max=MOST_SCALE).squeeze(0)


class Towers(Trunk):
    """A bi-encoder (Reimers and Gurevych, 2019): both texts go through one encoder in one call; with towers of their
    own (Karpukhin et al., 2020) the second has all weights for itself.

    Towers of their own have one hidden state of both, in which each block changes the rows of its text: so the model
    can be cut between any two blocks.
    """

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__(shape)
        self.pool = shape.pool
        self.apart = shape.apart
        if self.apart:
            self._second(shape)
        self.scale = Scale() if shape.scaled else None

    def _second(self, shape: EncoderShape) -> None:
        """Register a second tower."""
        # What is used before the first block is registered before it, by which layouts go: the blocks go behind.
        behind: dict[str, nn.Module | None] = {
            name: self._modules.pop(name) for name in ("blocks", "norm") if name in self._modules
        }
        learned = self.positions is not None
        self.target_embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.target_positions = nn.Embedding(shape.context, shape.width) if learned else None
        self.target_embedding_norm = norm_of(shape) if shape.order == "post" else None
        self._modules.update(behind)
        every = shape.recompute
        self.target_blocks = nn.ModuleList(
            Block(shape, recompute=bool(every) and index % every == 0) for index in range(shape.layers)
        )
        self.target_norm = norm_of(shape) if shape.order == "pre" else None

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        *,
        target: Tensor,
        target_lengths: Tensor | None = None,
    ) -> Outputs:
        """The vectors of the first and of the second text: `hidden` [rows, 2, width], not normalised; `head` is the
        scale of their likeness (0 dimensions), where it is learnt.

        tokens, target: ids of the texts [rows, positions]. lengths, target_lengths: how many of each row are no
        padding, [rows]; left out: all. Raise ValueError for rows longer than `context`.
        """
        self._fits(max(tokens.shape[1], target.shape[1]))
        rows, wide = tokens.shape[0], max(tokens.shape[1], target.shape[1])
        lengths = torch.cat((_lengths(tokens, lengths), _lengths(target, target_lengths)))
        mask = padding_mask(lengths, wide, self.pattern)
        first, second = (F.pad(each, (0, wide - each.shape[1])) for each in (tokens, target))
        if self.apart:
            x = self._apart(first, second, mask)
        else:
            x = self._states(torch.cat((first, second)), None, 0, mask, None)
        both = pooled(x, self.pool, lengths)
        scale = None if self.scale is None else self.scale()
        return Outputs(hidden=both.view(2, rows, -1).transpose(0, 1), head=scale)

    def _apart(self, first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
        """The last hidden states of both texts, one below the other."""
        rows, wide = first.shape
        rotation: Rotation | None = None
        if self.rotary is not None:
            rotation = self.rotary.at(0, wide, first.device)
        x = torch.cat(
            (
                self._entered(first, self.embedding, self.positions, self.embedding_norm),
                self._entered(
                    second, self.target_embedding, self.target_positions, self.target_embedding_norm
                ),
            )
        )
        towers = (self.blocks, self.norm), (self.target_blocks, self.target_norm)
        for number, (blocks, norm) in enumerate(towers):
            part = (0, number * rows, rows)
            own = mask.narrow(*part)
            for block in blocks:
                x = block(x, rotation, own, None, part)
            if norm is not None:
                x = replaced(x, part, norm(x.narrow(*part)))
        return x

    def _entered(
        self, tokens: Tensor, embedding: nn.Embedding, positions: nn.Embedding | None, norm: nn.Module | None
    ) -> Tensor:
        x = placed(embedding(tokens), positions, self.sinusoid, 0, None)
        x = x if norm is None else norm(x)
        return F.dropout(x, self.dropout) if self.dropout and self.training else x


def _lengths(tokens: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is not None:
        return lengths
    return torch.full((tokens.shape[0],), tokens.shape[1], device=tokens.device)
