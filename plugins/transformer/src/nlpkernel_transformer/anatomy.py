"""What each parameter of the network is, and the first value that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nlpkernel.hookspecs.model import Anatomy, ParameterFacts, Role
from nlpkernel_transformer.image_shape import ImageTextShape
from nlpkernel_transformer.shape import EncoderShape, PairShape
from nlpkernel_transformer.towers import FIRST_SCALE

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from nlpkernel_transformer.shape import Shape


def _facts(role: Role, *tags: str, decay: bool = True, parts: tuple[int, ...] = ()) -> ParameterFacts:
    return ParameterFacts(role=role, decay=decay, tags=frozenset(tags), parts=parts)


def _of_block(shape: Shape) -> Mapping[str, ParameterFacts]:
    up = shape.up if len(shape.up) > 1 else ()
    return {
        "attention_norm.weight": _facts("replicate", "norm", decay=False),
        "attention_norm.bias": _facts("replicate", "norm", "bias", decay=False),
        "attention.qkv.weight": _facts("column", "attention", parts=shape.fused),
        "attention.qkv.bias": _facts("column", "attention", "bias", decay=False, parts=shape.fused),
        "attention.out.weight": _facts("row", "attention", "residual"),
        "attention.out.bias": _facts("replicate", "attention", "bias", decay=False),
        "mlp_norm.weight": _facts("replicate", "norm", decay=False),
        "mlp_norm.bias": _facts("replicate", "norm", "bias", decay=False),
        "mlp.up.weight": _facts("column", "mlp", parts=up),
        "mlp.up.bias": _facts("column", "mlp", "bias", decay=False, parts=up),
        "mlp.down.weight": _facts("row", "mlp", "residual"),
        "mlp.down.bias": _facts("replicate", "mlp", "bias", decay=False),
    }


def _of_cross(shape: Shape) -> Mapping[str, ParameterFacts]:
    """What a block of a decoder has beside that."""
    return {
        "cross_norm.weight": _facts("replicate", "norm", decay=False),
        "cross_norm.bias": _facts("replicate", "norm", "bias", decay=False),
        "cross.query.weight": _facts("column", "attention"),
        "cross.query.bias": _facts("column", "attention", "bias", decay=False),
        "cross.kv.weight": _facts("column", "attention", parts=shape.fused[1:]),
        "cross.kv.bias": _facts("column", "attention", "bias", decay=False, parts=shape.fused[1:]),
        "cross.out.weight": _facts("row", "attention", "residual"),
        "cross.out.bias": _facts("replicate", "attention", "bias", decay=False),
    }


def _blocks(shape: Shape) -> tuple[str, ...]:
    """Their paths, in the order of the forward pass."""
    if isinstance(shape, PairShape):
        decoder = (f"decoder.{index}" for index in range(shape.decoder_layers))
        return (*(f"encoder.{index}" for index in range(shape.layers)), *decoder)
    if isinstance(shape, ImageTextShape):
        image = (f"image_blocks.{index}" for index in range(shape.image_layers))
        return (*(f"blocks.{index}" for index in range(shape.layers)), *image)
    towers = ("blocks", "target_blocks") if isinstance(shape, EncoderShape) and shape.apart else ("blocks",)
    return tuple(f"{tower}.{index}" for tower in towers for index in range(shape.layers))


def describe(module: nn.Module, shape: Shape) -> Anatomy:
    """The anatomy of a module that `build` makes.

    Weight decay applies to every matrix, embeddings among them, and to no vector (norms and biases), as in GPT-2's
    and nanoGPT's training. Projections into the residual stream have the tag "residual".
    """
    table = ("embedding", "head") if shape.tied else ("embedding",)
    # The few classes of a classifier are not worth a cut.
    scores: Role = "vocab"
    paired = isinstance(shape, ImageTextShape) or (
        isinstance(shape, EncoderShape) and shape.purpose == "pairs"
    )
    if isinstance(shape, EncoderShape) and shape.purpose != "mlm":
        scores = "replicate"
    known = {
        "embedding.weight": _facts("vocab", *table),
        "positions.weight": _facts("replicate", "embedding", "positions"),
        "target_positions.weight": _facts("replicate", "embedding", "positions"),
        "source_norm.weight": _facts("replicate", "norm", decay=False),
        "source_norm.bias": _facts("replicate", "norm", "bias", decay=False),
        "norm.weight": _facts("replicate", "norm", decay=False),
        "norm.bias": _facts("replicate", "norm", "bias", decay=False),
        "embedding_norm.weight": _facts("replicate", "norm", decay=False),
        "embedding_norm.bias": _facts("replicate", "norm", "bias", decay=False),
        "dense.weight": _facts("replicate", "head"),
        "dense.bias": _facts("replicate", "head", "bias", decay=False),
        "dense_norm.weight": _facts("replicate", "head", "norm", decay=False),
        "dense_norm.bias": _facts("replicate", "head", "norm", "bias", decay=False),
        "head.weight": _facts(scores, "head"),
        "head.bias": _facts(scores, "head", "bias", decay=False),
        "scale.weight": _facts("replicate", "head", "scale", decay=False),
        "patches.project.weight": _facts("replicate", "image"),
        "patches.project.bias": _facts("replicate", "image", "bias", decay=False),
        "patches.first": _facts("replicate", "image", "positions", decay=False),
        "patches.positions": _facts("replicate", "image", "positions"),
        "image_norm.weight": _facts("replicate", "norm", decay=False),
        "image_norm.bias": _facts("replicate", "norm", "bias", decay=False),
        "text_projection.weight": _facts("replicate", "head", "projection"),
        "image_projection.weight": _facts("replicate", "head", "projection"),
    }
    for name in ("embedding", "embedding_norm", "norm"):
        # Those of a second tower.
        known |= {f"target_{key}": facts for key, facts in known.items() if key.partition(".")[0] == name}
    of_block = {**_of_block(shape), **_of_cross(shape)}
    blocks = _blocks(shape)
    for block in blocks:
        known.update({f"{block}.{name}": facts for name, facts in of_block.items()})
    return Anatomy(
        blocks=blocks,
        embedding="embedding",
        head=None if paired else "head",
        ties=(("embedding.weight", "head.weight"),) if shape.tied else (),
        parameters={name: known[name] for name, _ in module.named_parameters()},
    )


def initialiser(anatomy: Anatomy, shape: Shape) -> Callable[[str, Tensor, Generator], None]:
    """The rule that fills one parameter in place, from its name and a generator alone.

    Biases are 0, norms 1, a learnt scale is CLIP's; matrices are normal with `init_std`, those that write into the
    residual stream with `Shape.narrow`. Embeddings beside sinusoids, which they are multiplied by the square root of
    the width for, are as large as these: normal with one over that root; so are the places of patches, and projections
    of vectors that are compared, as in CLIP. Raise KeyError for a name that the model does
    not have.
    """

    def initialise(name: str, tensor: Tensor, generator: Generator) -> None:
        tags = anatomy.parameters[name].tags
        if "bias" in tags:
            tensor.zero_()
        elif "norm" in tags:
            tensor.fill_(1.0)
        elif "scale" in tags:
            tensor.fill_(FIRST_SCALE)
        else:
            std = shape.narrow(name) if "residual" in tags else shape.init_std
            scaled = tags >= {"image", "positions"} or "projection" in tags
            if scaled or ("embedding" in tags and shape.positions == "sinusoidal"):
                std = shape.width**-0.5
            tensor.normal_(0.0, std, generator=generator)

    return initialise
