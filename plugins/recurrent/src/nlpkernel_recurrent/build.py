"""From a shape to a model as the kernel takes it: structure, what each parameter is, and its first value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nlpkernel.hookspecs.model import Anatomy, Model, ParameterFacts, Role
from nlpkernel_recurrent.module import Labeller, Writer

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from nlpkernel_recurrent.shape import Shape


def build(shape: Shape) -> Model:
    """The structure on the device that is current (the kernel's: meta), what it consists of, and how it is filled."""
    module = Writer(shape) if shape.purpose == "lm" else Labeller(shape)
    anatomy = describe(module, shape)
    return Model(module=module, anatomy=anatomy, initialise=initialiser(anatomy, shape))


def describe(module: nn.Module, shape: Shape) -> Anatomy:
    """The anatomy. The layers are whole on every worker: each step needs all of the state before it."""
    return Anatomy(
        blocks=tuple(f"layers.{index}" for index in range(shape.layers)),
        embedding="embedding",
        head="head",
        ties=(("embedding.weight", "head.weight"),) if shape.tied else (),
        parameters={name: _facts(name, shape) for name, _ in module.named_parameters()},
    )


def _facts(name: str, shape: Shape) -> ParameterFacts:
    top = name.partition(".")[0]
    role: Role = "replicate"
    tags = {"embedding": {"embedding"}, "head": {"head"}}.get(top, {"recurrent"})
    if top == "embedding" or (top == "head" and shape.purpose == "lm"):
        role = "vocab"
    if top == "embedding" and shape.tied:
        tags = {"embedding", "head"}
    if "bias" in name:
        tags = tags | {"bias"}
    return ParameterFacts(role=role, decay="bias" not in name, tags=frozenset(tags))


def initialiser(anatomy: Anatomy, shape: Shape) -> Callable[[str, Tensor, Generator], None]:
    """The rule that fills one parameter in place, from its name and a generator alone.

    Matrices of the layers are uniform up to one over the square root of a direction's width, as torch's; biases are 0,
    but that of an LSTM's forget gate 1 (Jozefowicz et al., 2015). Embedding and head are normal with `init_std`. Raise
    KeyError for a name that the model does not have.
    """
    bound = shape.hidden**-0.5

    def initialise(name: str, tensor: Tensor, generator: Generator) -> None:
        tags = anatomy.parameters[name].tags
        if "bias" in tags:
            tensor.zero_()
            if shape.cell == "lstm" and name.endswith("bias_ih"):
                tensor[shape.hidden : 2 * shape.hidden].fill_(1.0)
        elif "recurrent" in tags:
            tensor.uniform_(-bound, bound, generator=generator)
        else:
            tensor.normal_(0.0, shape.init_std, generator=generator)

    return initialise
