"""The slot `model`, and the extension point `transform` that changes a model's structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import attrs

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import DataInfo

#: How a parameter may be cut over a tensor-parallel axis: by rows of its output (`column`), of its input (`row`), over
#: the vocabulary, over experts, or not at all.
Role = Literal["column", "row", "vocab", "expert", "replicate"]


@attrs.frozen(kw_only=True)
class ParameterFacts:
    """What others need to know of one parameter. `decay`: whether weight decay applies. `tags`: "embedding", "head",
    "norm", "bias", "attention", "mlp", ... and what transforms add. `parts`: lengths of the consecutive pieces along
    the dimension that is cut, each of which is cut for itself (queries, keys and values of one fused projection);
    empty: the parameter is cut as a whole."""

    role: Role = "replicate"
    decay: bool = True
    tags: frozenset[str] = frozenset()
    parts: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Anatomy:
    """What a model consists of, said once, so that nobody guesses from parameter names.

    blocks: module paths of the repeated blocks, in the order of the forward pass. embedding, head: module paths or
    None. ties: groups of parameter names that are one tensor; the first name of each is the one that
    `named_parameters` gives. parameters: facts by name, for every name that `named_parameters` gives.

    A layout that cuts a model between its blocks goes by what is said here and by the order of registration, which is
    that of the forward pass: what is registered before the first block is used before it, and what is registered after
    a block is used after it. Each block is called once, in the order of `blocks`; its first argument is the hidden
    state, and so is its result, or the first element of that. Its other arguments depend on no parameter.
    """

    blocks: tuple[str, ...]
    embedding: str | None
    head: str | None
    ties: tuple[tuple[str, ...], ...] = ()
    parameters: Mapping[str, ParameterFacts]


@attrs.frozen(kw_only=True)
class Model:
    """A model's structure. `module` is on the meta device; it is distributed first and filled after that.

    initialise(name, tensor, generator) fills one parameter or buffer in place. It is called for every name that
    `named_parameters` and `named_buffers` give, with a generator keyed by (seed, name): the same values on any layout.
    `module.forward` takes what `Task.inputs` gives and returns `Outputs`. A model that can generate has
    `context` (most positions of a row), `prefill(tokens, capacity) -> (logits, cache)` with memory for `capacity`
    positions, and `decode(tokens, cache) -> (logits, cache)`; logits are those after the last token [rows, vocabulary].
    One that writes a second text has, instead of `prefill`, `encode(tokens, lengths, capacity) -> cache`. A model whose
    texts are searched has `select(cache, rows) -> cache`, the cache of these rows [count], each as often as it comes.
    finish_block(block) -> block is applied to each block of the anatomy once the layout is made (activation
    checkpointing, compiling); None: nothing.
    """

    module: nn.Module
    anatomy: Anatomy
    initialise: Callable[[str, Tensor, Generator], None]
    finish_block: Callable[[nn.Module], nn.Module] | None = None


class Outputs(NamedTuple):
    """What a model's forward gives. Either `logits` [rows, positions, vocabulary], or `hidden` [rows, positions, width]
    with the `head` weight [vocabulary, width], so that the loss need not hold all logits at once. Positions are those
    of the text that is written, where there are two. Where rows as a whole are classified, `logits` are [rows,
    classes]; where each token is, [rows, positions, classes]. Where pairs are compared, `hidden` are [rows, 2, width],
    the vectors of the first and of the second, and `head` the scale of their likeness (0 dimensions) where the model
    has learnt one.

    A named tuple, because wrappers of modules look for tensors in tuples and know no other class of ours.
    """

    logits: Tensor | None = None
    hidden: Tensor | None = None
    head: Tensor | None = None


@hook("pick")
def create_model(run: Run, info: DataInfo) -> Model:  # type: ignore[empty-body]
    """Build the structure for this data. Called under `torch.device("meta")`."""


@hook("transform")
def transform_model(model: Model, run: Run) -> Model:  # type: ignore[empty-body]
    """Change a model's structure and describe what was inserted in its anatomy. Asked in the order of the plan."""


MODEL = Point(
    name="model",
    slot=True,
    must=("create_model",),
    help="the network, with an anatomy that says what its parts are",
)
TRANSFORM = Point(
    name="transform",
    many=True,
    must=("transform_model",),
    help="a change to a model's structure, before it is distributed and filled",
)


@attrs.frozen(kw_only=True)
class ParameterGroup:
    """Names and tensors in one order, with what they have in common. A parameter server has these and no module."""

    names: Sequence[str]
    tensors: Sequence[Tensor]
    decay: bool
    tags: frozenset[str]
