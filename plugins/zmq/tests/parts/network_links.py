"""What a run of the protocol in memory is made of, and connections as ZeroMQ has them. See `network`."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import attrs

from nlpkernel_zmq.machines.sequencer import Told

Message = tuple[Any, ...]


@attrs.frozen
class Setup:
    """What is fixed for a run. every: rounds between snapshots; keep: rounds that a worker can send again, at least
    `every`. empty: shares without anything, as (round, share); overflow: (round, shard) with an infinite gradient.
    eager: a worker does not wait with a push until a shard that came back has caught up."""

    workers: int = 2
    shards: int = 2
    chunks: int = 2
    rounds: int = 6
    every: int = 1
    keep: int = 2
    meet: int = 3
    eager: bool = False
    empty: frozenset[tuple[int, int]] = frozenset()
    overflow: frozenset[tuple[int, int]] = frozenset()

    def applied(self, round: int) -> bool:
        """Whether a round is to be applied."""
        return not any((round, shard) in self.overflow for shard in range(self.shards))

    def told(self, round: int, shard: int) -> Told:
        """What a shard has to say of a round."""
        tokens = (
            (share + 1) * (chunk + 1) * (round + 1)
            for share in range(self.workers)
            for chunk in range(self.chunks)
            if (round, share) not in self.empty
        )
        square = float(sum(tokens)) + 0.1 * (shard + 1)
        overflow = (round, shard) in self.overflow
        return Told(math.inf if overflow else square, not overflow)

    def counts(self) -> list[list[int]]:
        """The tokens of each worker in each piece, before each round and after the last."""
        found = [[0] * self.workers]
        for round in range(self.rounds):
            found.append(
                [
                    count + (self.applied(round) and (round, share) not in self.empty)
                    for share, count in enumerate(found[-1])
                ]
            )
        return found


@attrs.define(eq=False)
class Connection:
    """Two rows of messages. Nothing more is sent once it is cut."""

    link: Link
    up: deque[Message] = attrs.field(factory=deque)
    down: deque[Message] = attrs.field(factory=deque)
    open: bool = True


@attrs.define(eq=False)
class Link:
    """A client's way to a server; without a connection what is sent is lost."""

    client: Any
    server: Any
    connection: Connection | None = None

    def send(self, *message: Any) -> None:
        if self.connection is not None:
            self.connection.up.append(message)


def answer(connection: Connection, *message: Any) -> None:
    """Send from the server's side."""
    if connection.open:
        connection.down.append(message)
