"""Evaluation of a split: every sample exactly once, as counts that add up."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nlpkernel.engine.environment import generators_kept
from nlpkernel.events import Evaluated
from nlpkernel.hookspecs.communicator import WorkersChanged

if TYPE_CHECKING:
    from nlpkernel.engine.session import Session
    from nlpkernel.hookspecs.model import Outputs


def evaluate(session: Session, split: str) -> dict[str, float | None]:
    """Metrics of a split as "split/name". Nothing but counts is kept from one batch to the next, and what is drawn
    here moves no generator of the training."""
    run, group, work, task = session.run, session.group, session.work, session.work.task
    start = time.monotonic()
    forward = partial(_forward, session)
    was_training = work.model.training
    with generators_kept(), torch.no_grad(), ExitStack() as stack:
        for context in session.hooks.collect("weights_for", run=run, use="evaluate"):
            stack.enter_context(context)
        stack.callback(work.model.train, was_training)
        work.model.eval()
        merged: dict[str, Any] | None = None
        while merged is None:
            counts: dict[str, Tensor] = {}
            for batch, counted in group.spread(work.data.evaluation(split)):
                run.pulse.moves += 1
                moved = {name: tensor.to(group.device, non_blocking=True) for name, tensor in batch.items()}
                for name, value in task.evaluate(forward, moved).items():
                    if not counted:
                        value = torch.zeros_like(value)
                    counts[name] = value if name not in counts else counts[name] + value
            with suppress(WorkersChanged):
                merged = {name: value.tolist() for name, value in group.merge(counts).items()}
    metrics = {f"{split}/{name}": value for name, value in task.value(merged).items()}
    best = session.memory.note(metrics, session.progress.step)
    session.bus.publish(
        Evaluated(
            time=time.time(),
            progress=session.progress,
            split=split,
            metrics={name.partition("/")[2]: value for name, value in metrics.items()},
            samples=session.data.info.splits[split].samples,
            seconds=time.monotonic() - start,
            best=best,
        )
    )
    return metrics


def _forward(session: Session, **inputs: object) -> Outputs:
    outputs: Outputs = session.group.forward(session.work, inputs)
    return outputs
