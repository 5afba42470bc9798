"""What a layout makes of the sizes of a plan, and whether it goes with the rest of it. Light: no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_torchdist.cost import bubble

if TYPE_CHECKING:
    from nlpkernel_torchdist.component import TorchDist
    from nlpkernel_torchdist.layout import Layout


def estimate(settings: TorchDist, facts: Facts) -> Facts:
    """Bytes of one worker. What tensor and pipeline divide is taken as divided evenly; norms and biases, which tensor
    leaves whole, are small."""
    layout = settings.layout(settings.workers)
    apart, shard = layout.tensor * layout.pipe, settings.shard
    parameters = apart * (layout.data if shard == 3 else 1)
    optimizer = apart * (layout.data if shard else 1)
    return attrs.evolve(
        facts,
        parameter_bytes=_part(facts.parameter_bytes, parameters),
        gradient_bytes=_part(facts.gradient_bytes, apart * (layout.data if shard > 1 else 1)),
        optimizer_bytes=_part(facts.optimizer_bytes, optimizer),
        parameter_parts=parameters,
        optimizer_parts=optimizer,
        activation_bytes=_part(facts.activation_bytes, apart),
        notes=(*facts.notes, *_notes(settings, layout, facts)),
    )


def misfits(settings: TorchDist, facts: Facts) -> Iterator[tuple[str, str]]:
    """Settings that do not go with the rest of the plan, with the reason."""
    layout = settings.layout(settings.workers)
    stages = layout.pipe * (settings.virtual if settings.schedule == "interleaved" else 1)
    if facts.blocks is not None and facts.blocks < stages:
        yield "pipeline", f"the pipeline has {stages} stages, and the model only {facts.blocks} blocks"
    if facts.cuts is not None and facts.cuts % layout.tensor:
        yield (
            "tensor",
            f"the model's layers can be cut into {facts.cuts} equal parts with whole heads, which do not divide among "
            f"{layout.tensor} workers",
        )
    if facts.need == "whole_tensor" and (layout.tensor > 1 or (settings.shard > 1 and layout.data > 1)):
        name = "tensor" if layout.tensor > 1 else "shard"
        yield (
            name,
            f"the optimizer needs whole tensors, and {name} = {getattr(settings, name)} gives each worker pieces; "
            "shard 0 and 1 leave them whole",
        )
    if settings.uneven == "truncate" and (rounds := _microbatches(facts)) < layout.data:
        yield (
            "uneven",
            f"a window has {rounds} micro-batches, and {layout.data} data workers: with truncate nothing would ever be "
            "trained on",
        )


def _notes(settings: TorchDist, layout: Layout, facts: Facts) -> Iterator[str]:
    if settings.trusted_network:
        yield (
            "trusted_network: what workers on several machines exchange by torch.distributed (or Ray) is neither "
            "encrypted nor authenticated, so nobody else may reach their network"
        )
    yield f"the bytes are those of one worker of {layout.workers} ({layout})"
    rounds = _microbatches(facts)
    idle = -rounds % layout.data
    if idle and settings.uneven == "pad":
        yield (
            f"a window has {rounds} micro-batches for {layout.data} data workers, so {idle} of "
            f"{rounds + idle} forwards count nothing; choose train.micro so that they divide"
        )
    if layout.pipe > 1:
        own = -(-rounds // layout.data)
        each = settings.virtual if settings.schedule == "interleaved" else 1
        waiting = bubble(layout.pipe, own, each)
        yield (
            f"{own} micro-batches go through {layout.pipe} stages, which wait {waiting:.0%} of the time; more "
            "micro-batches make it less"
        )
    if settings.shard == 3:
        yield "beside its share of the parameters a worker holds one block whole while that computes"
    if settings.shard == 2:
        yield "the parameters of shard 2 are divided between two steps, and whole from forward to backward"


def _microbatches(facts: Facts) -> int:
    return -(-facts.batch // facts.micro)


def _part(size: int | None, parts: int) -> int | None:
    return None if size is None else -(-size // parts)
