"""The one contract: hooks and protocols, a module for each slot and shared extension point.

Hooks ask, events tell, protocols do the work: a `create_*` or `open_*` hook is asked once and returns an object that
follows a typed Protocol, which the hot loop then calls directly.
"""

from __future__ import annotations

from types import ModuleType

from nlpkernel.hookspecs import (
    augmentation,
    checkpoint,
    communicator,
    compressor,
    data,
    everywhere,
    model,
    monitor,
    optimizer,
    policy,
    precision,
    reader,
    sampler,
    stage,
    task,
    tokenizer,
)
from nlpkernel.hookspecs._spec import KIND, PATIENCE, HookKind, Point, hook

#: The modules that hold hook specs.
MODULES: tuple[ModuleType, ...] = (
    data,
    reader,
    stage,
    augmentation,
    sampler,
    tokenizer,
    task,
    model,
    optimizer,
    communicator,
    compressor,
    precision,
    checkpoint,
    everywhere,
)

#: Slots in the order in which a plan's sections are activated, then the shared extension points.
POINTS: dict[str, Point] = {
    point.name: point
    for point in (
        data.POINT,
        model.MODEL,
        optimizer.OPTIMIZER,
        communicator.POINT,
        precision.POINT,
        checkpoint.POINT,
        monitor.POINT,
        reader.POINT,
        stage.POINT,
        augmentation.POINT,
        sampler.POINT,
        tokenizer.POINT,
        task.POINT,
        model.TRANSFORM,
        optimizer.SCHEDULE,
        compressor.POINT,
        policy.POINT,
    )
}

SLOTS: tuple[str, ...] = tuple(name for name, point in POINTS.items() if point.slot)

__all__ = ["KIND", "MODULES", "PATIENCE", "POINTS", "SLOTS", "HookKind", "Point", "hook"]
