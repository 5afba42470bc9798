"""Which stage of a pipeline has which blocks, parameters and buffers of a model, by its anatomy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import attrs

from nlpkernel.errors import PlanError, fail
from nlpkernel_torchdist.codes import OWNER

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nlpkernel.hookspecs.model import Anatomy


@attrs.frozen
class Stages:
    """A model divided into `count` stages.

    blocks: paths, in the order of the forward pass. stage_of: the stage of each block. parameters: for every
    parameter, under each of its names, the stages that need it: one, or those of all its names where it is tied.
    buffers: for every buffer that belongs to a block its stage, and None for one outside of the blocks, which all
    need; savers: the stage that saves it.
    """

    count: int
    blocks: tuple[str, ...]
    stage_of: tuple[int, ...]
    parameters: Mapping[str, frozenset[int]]
    buffers: Mapping[str, int | None]
    savers: Mapping[str, int]


def lengths(blocks: int, stages: int) -> list[int]:
    """How many blocks each stage gets: as many as the others, or one more. Those go first to the stages in the middle,
    then to the first, and never to the last: the embedding is little work, and the head is much."""
    each, extra = divmod(blocks, stages)
    order = [*range(1, stages - 1), 0]
    more = set(order[:extra])
    return [each + (stage in more) for stage in range(stages)]


def divide(module: nn.Module, anatomy: Anatomy, count: int) -> Stages:
    """Divide a module into stages.

    What is registered before the first block belongs to the first stage (the embedding among it, wherever it is), what
    is registered after a block to the stage of that block, and the head to the last stage. Raise PlanError (TDI005)
    where there are fewer blocks than stages.
    """
    blocks = anatomy.blocks
    if len(blocks) < count:
        raise fail(
            PlanError,
            "TDI005",
            f"the model has {len(blocks)} blocks, and the pipeline {count} stages; each needs a block",
            owner=OWNER,
            hint="give the pipeline fewer stages, or the model more layers",
        )
    ends = list(accumulate(lengths(len(blocks), count)))
    stage_of = tuple(
        next(stage for stage, end in enumerate(ends) if index < end) for index in range(len(blocks))
    )
    by_block = dict(zip(blocks, stage_of, strict=True))
    stage = 0
    at: dict[str, int] = {}
    names: dict[int, list[str]] = {}
    buffers: dict[str, int | None] = {}
    for path, layer in module.named_modules(remove_duplicate=False):
        block = _block(path, by_block)
        stage = by_block[block] if block is not None else stage
        for name, tensor, parameter in _own(path, layer):
            at[name] = stage if block is not None else _fixed(name, anatomy, count, stage)
            if parameter:
                names.setdefault(id(tensor), []).append(name)
            else:
                buffers[name] = stage if block is not None else None
    parameters = {}
    for alike in names.values():
        needed = frozenset(at[name] for name in alike)
        parameters.update(dict.fromkeys(alike, needed))
    savers = {name: min(needed) for name, needed in parameters.items()} | {name: at[name] for name in buffers}
    return Stages(count, blocks, stage_of, parameters, buffers, savers)


def _block(path: str, blocks: Mapping[str, int]) -> str | None:
    """The block that a module is in."""
    parts = path.split(".")
    return next((each for n in range(1, len(parts) + 1) if (each := ".".join(parts[:n])) in blocks), None)


def _own(path: str, layer: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    dot = f"{path}." if path else ""
    for name, parameter in layer._parameters.items():
        if parameter is not None:
            yield dot + name, parameter, True
    for name, buffer in layer._buffers.items():
        if buffer is not None:
            yield dot + name, buffer, False


def _fixed(name: str, anatomy: Anatomy, count: int, stage: int) -> int:
    """The stage of what lies outside of the blocks: the anatomy's own, or `stage`."""
    for path, own in ((anatomy.embedding, 0), (anatomy.head, count - 1)):
        if path is not None and name.startswith(f"{path}."):
            return own
    return stage
