"""Which samples made a window that is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import torch

from nlpkernel.engine.environment import generators_kept

if TYPE_CHECKING:
    from nlpkernel.engine.session import Session
    from nlpkernel.hookspecs.data import Microbatch

#: Names shown in a message.
SHOWN = 8


@attrs.frozen
class Suspects:
    """Samples that made a window not finite, and the workers that had them."""

    names: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"on rank {', '.join(map(str, self.ranks))}; samples: {', '.join(self.names)}"


def culprits(session: Session, step: int, window: Sequence[Microbatch]) -> Suspects:
    """The samples of the micro-batches whose loss is not finite under the weights as they stand.

    The forwards are done again, one micro-batch at a time, on all workers; where every loss is finite (the gradient
    alone was not), the samples of the whole window are named.
    """
    data, work = session.data, session.work
    guilty: list[int] = []
    with generators_kept(), torch.no_grad():
        for index in range(len(window)):
            batch = {
                name: tensor.to(session.group.device) for name, tensor in data.microbatch(step, index).items()
            }
            outputs = session.group.forward(work, work.task.inputs(batch))
            # After the forward and not around it: a precision may give one context object, which cannot be nested.
            with work.precision.autocast():
                terms = work.task.loss(outputs, batch)
            if not all(math.isfinite(float(term.sum)) for term in terms):
                guilty.append(index)
    guilty = guilty or list(range(len(window)))
    group = session.group
    mine = not set(guilty).isdisjoint(group.assign(step, len(window)))
    own = torch.zeros(group.world, device=group.device)
    own[group.rank] = float(mine)
    ranks = group.merge({"guilty": own})["guilty"].nonzero().flatten().tolist()
    return Suspects(names_of(session, step, guilty), tuple(ranks))


def names_of(session: Session, step: int, indices: Iterable[int]) -> tuple[str, ...]:
    """Names of the first samples of some micro-batches, and how many more there are."""
    names = [name for index in indices for name in session.data.names(step, index)]
    more = (f"and {len(names) - SHOWN} more",) if len(names) > SHOWN else ()
    return (*names[:SHOWN], *more)
