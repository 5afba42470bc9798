"""Which samples made a window that is not finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from nlpkernel.engine.environment import load_random_state, random_state

if TYPE_CHECKING:
    from nlpkernel.engine.session import Session
    from nlpkernel.hookspecs.data import Microbatch

#: Names shown in a message.
SHOWN = 8


def culprits(session: Session, step: int, window: Sequence[Microbatch]) -> tuple[str, ...]:
    """Names of the samples of the micro-batches whose loss is not finite under the weights as they stand.

    The forwards are done again, one micro-batch at a time; where every loss is finite (the gradient alone was not),
    the samples of the whole window are named.
    """
    data, task, device = session.data, session.work.task, session.group.device
    generators = random_state()
    guilty: list[int] = []
    with torch.no_grad():
        for index in range(len(window)):
            batch = {name: tensor.to(device) for name, tensor in data.microbatch(step, index).items()}
            outputs = session.group.forward(session.work, task.inputs(batch))
            if not all(math.isfinite(float(term.sum)) for term in task.loss(outputs, batch)):
                guilty.append(index)
    load_random_state(generators)
    names = [name for index in guilty or range(len(window)) for name in data.names(step, index)]
    more = (f"and {len(names) - SHOWN} more",) if len(names) > SHOWN else ()
    return (*names[:SHOWN], *more)
