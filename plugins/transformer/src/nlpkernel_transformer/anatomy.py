"""What each parameter of the network is, and the first value that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nlpkernel.hookspecs.model import Anatomy, ParameterFacts, Role
from nlpkernel_transformer.shape import EncoderShape

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


def describe(module: nn.Module, shape: Shape) -> Anatomy:
    """The anatomy of a `Transformer` or an `Encoder`.

    Weight decay applies to every matrix, embeddings among them, and to no vector (norms and biases), as in GPT-2's
    and nanoGPT's training. Projections into the residual stream have the tag "residual".
    """
    table = ("embedding", "head") if shape.tied else ("embedding",)
    # The few classes of a classifier are not worth a cut.
    scores: Role = "vocab"
    if isinstance(shape, EncoderShape) and shape.purpose == "classification":
        scores = "replicate"
    known = {
        "embedding.weight": _facts("vocab", *table),
        "positions.weight": _facts("replicate", "embedding", "positions"),
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
    }
    of_block = _of_block(shape)
    blocks = tuple(f"blocks.{index}" for index in range(shape.layers))
    for block in blocks:
        known.update({f"{block}.{name}": facts for name, facts in of_block.items()})
    return Anatomy(
        blocks=blocks,
        embedding="embedding",
        head="head",
        ties=(("embedding.weight", "head.weight"),) if shape.tied else (),
        parameters={name: known[name] for name, _ in module.named_parameters()},
    )


def initialiser(anatomy: Anatomy, shape: Shape) -> Callable[[str, Tensor, Generator], None]:
    """The rule that fills one parameter in place, from its name and a generator alone.

    Biases are 0, norms 1, matrices normal with `init_std`; with norms first, matrices that write into the residual
    stream are narrower by sqrt(2 * layers), since so many of them add up there (Radford et al., 2019). Raise KeyError
    for a name that the model does not have.
    """
    narrow = shape.init_std / (2 * shape.layers) ** 0.5 if shape.order == "pre" else shape.init_std

    def initialise(name: str, tensor: Tensor, generator: Generator) -> None:
        tags = anatomy.parameters[name].tags
        if "bias" in tags:
            tensor.zero_()
        elif "norm" in tags:
            tensor.fill_(1.0)
        else:
            tensor.normal_(0.0, narrow if "residual" in tags else shape.init_std, generator=generator)

    return initialise
