"""The resolved shape of a model of images and texts, and what follows from it by arithmetic alone. Light: no torch."""

from __future__ import annotations

import attrs

from nlpkernel_transformer.shape import _FLOAT, _LONG, Pool, Shape


@attrs.frozen(kw_only=True)
class ImageTextShape(Shape):
    """A text tower, whose shape this is but for what follows, and an image tower of the same width. image: pixels of a
    side; patch: of a side of a patch; image_layers: blocks of the image tower; projection: width of the space that both
    are projected into; pool: how a text's states become one."""

    image: int
    patch: int
    image_layers: int
    projection: int
    pool: Pool

    @property
    def values(self) -> int:
        """Numbers of one patch, of three colours."""
        return 3 * self.patch**2

    @property
    def places(self) -> int:
        """Positions of the image tower: its patches, behind the one whose state is the image's."""
        return (self.image // self.patch) ** 2 + 1

    @property
    def tied(self) -> bool:
        """There is no head that could be."""
        return False

    def tower(self) -> Shape:
        """The shape of the image tower's blocks, which see all of an image."""
        return attrs.evolve(self, layers=self.image_layers, span=None, sparse=None)

    def parameters(self) -> int:
        """The number of parameters."""
        bias = 1 if self.bias else 0
        image = (self.values + bias) * self.width + self.width + self.places * self.width
        image += self.image_layers * self._of_block() + self._of_norm
        return super().parameters() + image

    def _of_head(self) -> int:
        return 2 * self.width * self.projection + 1

    def _writers(self, name: str) -> int:
        return 2 * self.image_layers if name.startswith("image_blocks.") else 2 * self.layers

    def activation_bytes(self, rows: int, positions: int) -> int:
        """Bytes that a float32 forward of texts [rows, positions] and their images and its loss keep for the backward
        pass, counted as for a decoder. The states of both go through all blocks."""
        both = positions + self.places
        floats = rows * (self.values * (self.places - 1) + both * self.width)
        again = 0
        for shape, count in ((self, positions), (self.tower(), self.places)):
            block = rows * count * shape._block_floats(count)
            beside = rows * (2 * both - count) * self.width
            recomputed = -(-shape.layers // self.recompute) if self.recompute else 0
            floats += (shape.layers - recomputed) * (block + beside) + recomputed * rows * both * self.width
            again = max(again, block if recomputed else 0)
        # The block that is computed again.
        floats += again
        # The norms' inputs, and what is projected.
        floats += rows * (2 * both * self.width + 2 * self.width)
        return floats * _FLOAT + rows * positions * _LONG
