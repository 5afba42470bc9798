"""From settings and data to a model: structure, anatomy, and the rule that fills it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.model import Model
from nlpkernel_hf.anatomy import blocks_of, describe
from nlpkernel_hf.codes import OWNER
from nlpkernel_hf.completing import needed
from nlpkernel_hf.configuration import configure, fits_not, names_of, position_limit
from nlpkernel_hf.filling import FromFolder, from_nothing
from nlpkernel_hf.heads import structure
from nlpkernel_hf.images import TASK, ImageText, embedding_of
from nlpkernel_hf.networks import UNLIMITED, LastState, Network, Pairs, Reader
from nlpkernel_hf.writers import Translator, Writer

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import DataInfo
    from nlpkernel_hf.component import Hf


def build(settings: Hf, run: Run, info: DataInfo) -> Model:
    """The model for this data, under the device that torch makes tensors on (the contract's: meta). Raise PlanError
    where settings, data and library do not go together."""
    config = configure(settings, run, info)
    model = structure(config, info.task, settings.attention)
    if "pad_token_id" not in (settings.config or {"pad_token_id": 0}):
        # Padding is told by length: where nobody says which id it has, none is left untrained.
        embedding_of(model).padding_idx = None
    network = _network(model, settings, info)
    blocks = blocks_of(network)
    every = {"none": 0, "full": 1}.get(settings.checkpointing, settings.checkpointing)  # type: ignore[arg-type]
    if every:
        _recompute(network, blocks[::every], config)
    anatomy = describe(network, blocks)
    if settings.folder is None:
        return Model(module=network, anatomy=anatomy, initialise=from_nothing(model))
    named = names_of(settings.folder, run)
    fresh = info.task in ("classification", "tokens") and bool(named) and tuple(named) != tuple(info.labels)
    fill = FromFolder(model, settings.folder, run, blocks, fresh)
    return Model(module=network, anatomy=anatomy, initialise=fill)


def _network(model: Any, settings: Hf, info: DataInfo) -> Network:
    first = _first_position(model)
    limit = position_limit(model.config)
    context = UNLIMITED if limit is None else limit - (first or 0)
    if context < needed(info):
        raise fits_not(context, info)
    if info.task == "lm":
        return Writer(model, context, first)
    if info.task == "seq2seq":
        return Translator(model, context, first)
    if info.task == "pairs":
        return Pairs(model, context, first, settings.pool)
    if info.task == TASK:
        return ImageText(model, context, first)
    if info.task == "classification" and isinstance(getattr(model, "score", None), nn.Linear):
        return LastState(model, context, first)
    return Reader(model, context, first)


def _first_position(model: Any) -> int | None:
    """Where positions are counted from the padding's id, the number of the first one. The library finds padding by its
    id, and our rows have it behind their length, with any id."""
    for part in model.modules():
        if hasattr(part, "create_position_ids_from_input_ids"):
            return int(part.padding_idx) + 1
    return None


def _recompute(network: Network, paths: Iterable[str], config: Any) -> None:
    """Let these blocks forget their activations, and compute them again, with the same random draws, in the backward
    pass. Each block does this itself, so that whatever wraps it stays outside."""
    paths = list(paths)
    if not paths:
        raise fail(
            PlanError,
            "HFM010",
            f"the blocks of a {config.model_type!r} are not known",
            owner=OWNER,
            hint="leave checkpointing out",
        )
    for path in paths:
        block = network.get_submodule(path)
        block.forward = _Recomputed(block)


class _Recomputed:
    """A block's forward under a checkpoint."""

    def __init__(self, block: nn.Module) -> None:
        self._block = block

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = type(self._block).forward
        if not self._block.training:
            return forward(self._block, *args, **kwargs)
        return checkpoint(forward, self._block, *args, use_reentrant=False, **kwargs)
