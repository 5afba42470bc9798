"""An image and a text that are compared: each becomes one vector, by a tower of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_transformer.encoder import pooled
from nlpkernel_transformer.module import Block, Trunk, norm_of, padding_mask, replaced
from nlpkernel_transformer.places import placed
from nlpkernel_transformer.towers import Scale

if TYPE_CHECKING:
    from nlpkernel_transformer.image_shape import ImageTextShape


class Patches(nn.Module):
    """An image as a row of states: its patches, each projected, behind one that is learnt, with learnt places
    (Dosovitskiy et al., 2021). The projection of patches is a convolution whose stride is its width."""

    def __init__(self, shape: ImageTextShape) -> None:
        super().__init__()
        self.image, self.patch = shape.image, shape.patch
        self.project = nn.Linear(shape.values, shape.width, bias=shape.bias)
        self.first = nn.Parameter(torch.empty(shape.width))
        self.positions = nn.Parameter(torch.empty(shape.places, shape.width))

    def forward(self, image: Tensor) -> Tensor:
        """States [rows, 1 + patches, width] of images [rows, 3, side, side]. Raise ValueError for images of another
        size."""
        if image.shape[1:] != (3, self.image, self.image):
            raise ValueError(
                f"images of {list(image.shape[1:])} values are not this model's [3, {self.image}, {self.image}]"
            )
        rows, colours = image.shape[:2]
        along = self.image // self.patch
        cut = image.reshape(rows, colours, along, self.patch, along, self.patch)
        flat = cut.permute(0, 2, 4, 1, 3, 5).reshape(rows, along * along, -1)
        patches = self.project(flat.to(self.project.weight.dtype))
        first = self.first.to(patches.dtype).expand(rows, 1, -1)
        return torch.cat((first, patches), dim=1) + self.positions


class ImageText(Trunk):
    """Two towers as in CLIP (Radford et al., 2021): an encoder of texts, and a Vision Transformer with norms before
    each half of a block. Both vectors are projected into one space, and a scale of their likeness is learnt.

    The states of both stand in one row, in which each block changes those of its tower: so the model can be cut between
    any two blocks.
    """

    def __init__(self, shape: ImageTextShape) -> None:
        super().__init__(shape)
        self.pool = shape.pool
        # What is used before the first block is registered before it, by which layouts go.
        behind: dict[str, nn.Module | None] = {name: self._modules.pop(name) for name in ("blocks", "norm")}
        self.patches = Patches(shape)
        self._modules.update(behind)
        every, tower = shape.recompute, shape.tower()
        self.image_blocks = nn.ModuleList(
            Block(tower, recompute=bool(every) and index % every == 0) for index in range(tower.layers)
        )
        self.image_norm = norm_of(shape)
        self.text_projection = nn.Linear(shape.width, shape.projection, bias=False)
        self.image_projection = nn.Linear(shape.width, shape.projection, bias=False)
        self.scale = Scale()

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, *, image: Tensor) -> Outputs:
        """The vectors of the text and of the image: `hidden` [rows, 2, projection], not normalised; `head` is the scale
        of their likeness (0 dimensions).

        tokens: ids [rows, positions]. lengths: how many of each row are no padding, [rows]; left out: all. image:
        normalised, [rows, 3, side, side]. Raise ValueError for rows longer than `context`, and for images of another
        size than the model's.
        """
        self._fits(tokens.shape[1])
        wide = tokens.shape[1]
        text = placed(self.embedding(tokens), self.positions, self.sinusoid, 0, None)
        x = torch.cat((text, self.patches(image).to(text.dtype)), dim=1)
        if self.dropout and self.training:
            x = F.dropout(x, self.dropout)
        rotation = None if self.rotary is None else self.rotary.at(0, wide, tokens.device)
        mask = None if lengths is None else padding_mask(lengths, wide, self.pattern)
        part = (1, 0, wide)
        for block in self.blocks:
            x = block(x, rotation, mask, None, part)
        assert self.norm is not None
        x = replaced(x, part, self.norm(x.narrow(*part)))
        part = (1, wide, x.shape[1] - wide)
        for block in self.image_blocks:
            x = block(x, None, None, None, part)
        said = self.text_projection(pooled(x[:, :wide], self.pool, lengths))
        seen = self.image_projection(self.image_norm(x[:, wide]))
        return Outputs(hidden=torch.stack((said, seen), dim=1), head=self.scale())
