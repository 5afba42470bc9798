"""What the servers make of the sizes of a plan. Light: no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel_zmq.component import ZmqPs

#: Gradients that a worker keeps at most.
MOST = 64


def estimate(settings: ZmqPs, facts: Facts) -> Facts:
    """Bytes of one worker: it holds no optimizer state, and its gradient twice, once to send it."""
    notes = list(facts.notes)
    notes.append(
        f"the bytes are those of one worker of {settings.workers}; the optimizer's state is on {settings.servers} "
        f"server{'s' if settings.servers > 1 else ''}"
    )
    if settings.down is not None:
        notes.append("with `down` each worker and each server has its part of the parameters once more")
    gradient = facts.gradient_bytes
    if gradient is not None and settings.replay:
        notes.append(kept(settings.replay, gradient))
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


def kept(replay: int, gradient: int) -> str:
    """What `replay` comes to, as a sentence."""
    number = slots(replay, gradient)
    if number == 1:
        return (
            f"replay = {replay:,} bytes does not hold two gradients of {gradient:,} bytes, so a server that is lost "
            "takes the run back to its newest version"
        )
    return (
        f"workers keep {number} gradients, and the servers write a snapshot every {every(number)} rounds; a larger "
        "replay makes that rarer"
    )


def every(slots: int) -> int:
    """How many rounds lie between two snapshots; 0: there are none."""
    return slots // 2


def slots(replay: int, gradient: int) -> int:
    """How many gradients of so many bytes a worker keeps; 1: none that could be sent again."""
    return max(1, min(MOST, replay // max(1, gradient)))
