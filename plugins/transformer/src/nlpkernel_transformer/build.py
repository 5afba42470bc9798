"""From a shape to a model as the kernel takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nlpkernel.hookspecs.model import Model
from nlpkernel_transformer.anatomy import describe, initialiser
from nlpkernel_transformer.encoder import Encoder
from nlpkernel_transformer.image_shape import ImageTextShape
from nlpkernel_transformer.image_text import ImageText
from nlpkernel_transformer.module import Transformer
from nlpkernel_transformer.pair import EncoderDecoder
from nlpkernel_transformer.shape import EncoderShape, PairShape
from nlpkernel_transformer.towers import Towers

if TYPE_CHECKING:
    from torch import nn

    from nlpkernel_transformer.shape import Shape


def build(shape: Shape) -> Model:
    """The structure on the device that is current (the kernel's: meta), what it consists of, and how it is filled."""
    module: nn.Module
    if isinstance(shape, EncoderShape):
        module = Towers(shape) if shape.purpose == "pairs" else Encoder(shape)
    elif isinstance(shape, PairShape):
        module = EncoderDecoder(shape)
    elif isinstance(shape, ImageTextShape):
        module = ImageText(shape)
    else:
        module = Transformer(shape)
    anatomy = describe(module, shape)
    return Model(module=module, anatomy=anatomy, initialise=initialiser(anatomy, shape))
