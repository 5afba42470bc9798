"""What the servers make of the sizes of a plan. Light: no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel_zmq.component import ZmqPs


def estimate(settings: ZmqPs, facts: Facts) -> Facts:
    """Bytes of one worker: it holds no optimizer state, and its gradient twice, once to send it."""
    notes = list(facts.notes)
    notes.append(
        f"the bytes are those of one worker of {settings.workers}; the optimizer's state is on {settings.servers} "
        f"server{'s' if settings.servers > 1 else ''}"
    )
    gradient = facts.gradient_bytes
    if gradient is not None and settings.replay:
        notes.append(f"to send them again, a worker keeps up to {slots(settings.replay, gradient)} gradients")
    idle = -(-facts.batch // facts.micro) % settings.workers
    if idle:
        notes.append(
            f"a window's micro-batches do not divide among {settings.workers} workers; choose train.micro so that they "
            "do"
        )
    return attrs.evolve(
        facts,
        gradient_bytes=None if gradient is None else 2 * gradient,
        optimizer_bytes=0 if facts.optimizer_bytes is not None else None,
        notes=tuple(notes),
    )


def slots(replay: int, gradient: int) -> int:
    """How many gradients of so many bytes a worker keeps."""
    if not replay:
        return 1
    return max(2, min(64, replay // max(1, gradient)))
