"""The protocol of `sync` in memory, around the machines that run behind the sockets, with a network that fails.

Workers, shards and a coordinator talk over connections as ZeroMQ has them: in order, and without loss, until a
connection is cut. Then what was under way is lost; what had arrived may still be read, also after the first messages of
the next connection; and the server does not know the client any more, which has to say hello again. A shard that
crashes goes back to its snapshot, a coordinator that crashes knows nothing.

The token test: the gradient of each piece of each share of a round is one token with its name. What a shard has counted
is at every moment exactly what `next` rounds hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .network_links import Connection, Link, Setup
from .network_servers import Coordinator, Shard
from .network_workers import Worker

__all__ = ["Setup", "Tape", "World"]


class Tape:
    """Choices, one byte each."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def over(self) -> bool:
        return self.at >= len(self.data)

    def pick(self, number: int) -> int:
        """One of so many; the first where there are no more bytes."""
        self.at += 1
        return 0 if self.at > len(self.data) else self.data[self.at - 1] % number


class World:
    """All of it. `log` says what happened."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.counts = setup.counts()
        self.had: dict[int, set[int]] = {}
        self.decisions: dict[int, Any] = {}
        self.log: list[str] = []
        #: The most rounds that had to be kept, and whether a snapshot could not be written.
        self.lag, self.disk_failed = 0, False
        self.coordinator = Coordinator(self)
        self.shards = [Shard(self, number) for number in range(setup.shards)]
        self.workers = [Worker(self, number) for number in range(setup.workers)]
        self.links = [shard.up for shard in self.shards]
        for worker in self.workers:
            self.links += [worker.control, *(view.link for view in worker.views)]
        self.connections: list[Connection] = []
        for link in self.links:
            self.connect(link)
            link.client.beat(link)

    # -- what happens -----------------------------------------------------------------------------------------------

    def rows(self) -> list[tuple[Connection, bool]]:
        """Where a message can be read: the connection, and whether by the server."""
        found = [(each, True) for each in self.connections if each.up]
        found += [(each, False) for each in self.connections if each.down]
        return found

    def deliver(self, connection: Connection, upwards: bool) -> None:
        link = connection.link
        if upwards:
            link.server.receive(connection, connection.up.popleft())
        else:
            link.client.from_server(link, connection.down.popleft())
        if not connection.open and not connection.up and not connection.down:
            self.connections.remove(connection)

    def connect(self, link: Link) -> None:
        link.connection = Connection(link)
        self.connections.append(link.connection)

    def cut(self, link: Link, up: int, down: int) -> None:
        """Cut a connection: so many messages have arrived on either side, and the others are lost."""
        connection, link.connection = link.connection, None
        if connection is not None:
            connection.open = False
            for row, arrived in ((connection.up, up), (connection.down, down)):
                while len(row) > arrived:
                    row.pop()

    def crash(self, server: Any, tape: Tape) -> None:
        """A server is killed, and started again."""
        for link in self.links:
            if link.server is server:
                self.cut(link, 0, tape.pick(4))
            elif link.client is server:
                self.cut(link, tape.pick(4), 0)
        for connection in self.connections:
            if connection.link.server is server:
                connection.up.clear()
            if connection.link.client is server:
                connection.down.clear()
        server.crash()

    def step(self, tape: Tape, faults: int) -> None:
        """Something happens; something bad in so many of 256 cases."""
        if tape.pick(256) >= 256 - faults:
            self.fault(tape)
            self.check()
            return
        kind = tape.pick(256)
        rows = self.rows()
        apart = [link for link in self.links if link.connection is None]
        able = [worker for worker in self.workers if worker.able]
        if kind < 130 and rows:
            self.some(rows[tape.pick(len(rows))], 1 + tape.pick(6))
        elif kind < 210 and able:
            worker = able[tape.pick(len(able))]
            for _ in range(1 + tape.pick(6)):
                if worker.able:
                    worker.act()
        elif kind < 228 and apart:
            self.connect(apart[tape.pick(len(apart))])
        elif kind < 234 or not rows:
            link = self.links[tape.pick(len(self.links))]
            link.client.beat(link)
        else:
            # What waits in one row is read while the others are slow.
            self.sweep()
        self.check()

    def sweep(self) -> bool:
        """Everything that waits is read, and everybody does what it can; False where there is nothing."""
        moved = False
        for row in self.rows():
            self.some(row, 1_000)
            moved = True
        for worker in self.workers:
            while worker.able:
                worker.act()
                moved = True
        return moved

    def some(self, row: tuple[Connection, bool], number: int) -> None:
        """Deliver so many of what waits in a row now, at most."""
        connection, upwards = row
        for _ in range(min(number, len(connection.up if upwards else connection.down))):
            self.deliver(connection, upwards)

    def fault(self, tape: Tape) -> None:
        """Something bad happens."""
        kind = tape.pick(16)
        if kind < 8:
            link = self.links[tape.pick(len(self.links))]
            self.log.append(f"cut {type(link.client).__name__} {link.client.number}")
            self.cut(link, tape.pick(8), tape.pick(8))
        elif kind < 12:
            shard = self.shards[tape.pick(len(self.shards))]
            if shard.protected:
                self.log.append(
                    f"crash of shard {shard.number} at {shard.rounds.next}, to {shard.snapshot.next}"
                )
                self.crash(shard, tape)
        elif kind < 14:
            self.log.append("crash of the coordinator")
            self.crash(self.coordinator, tape)
        else:
            shard = self.shards[tape.pick(len(self.shards))]
            shard.disk_full = not shard.disk_full
            self.log.append(f"disk of shard {shard.number} full: {shard.disk_full}")

    @property
    def done(self) -> bool:
        return all(worker.done for worker in self.workers) and all(
            shard.rounds.next == self.setup.rounds for shard in self.shards
        )

    def settle(self, deliveries: int, beats: int, until: Callable[[], bool] | None = None) -> tuple[int, int]:
        """No faults any more: all rounds end, or something comes true, within so many deliveries, and so many times in
        which everybody waits for the next beat. Returns how many of both it took."""
        until = until or (lambda: self.done)
        done = waits = 0
        while not until():
            for link in self.links:
                if link.connection is None:
                    self.connect(link)
            moved = False
            for row in self.rows():
                self.deliver(*row)
                self.check()
                moved, done = True, done + 1
                if until():
                    return done, waits
            for worker in self.workers:
                while worker.able:
                    worker.act()
                    moved = True
            if not moved:
                waits += 1
                for link in self.links:
                    link.client.beat(link)
            assert done <= deliveries, f"{done} deliveries, and it is not done: {self.state()}"
            assert waits <= beats, f"nobody moves: {self.state()}"
        return done, waits

    def repair(self) -> None:
        """Every disk takes a snapshot again."""
        for shard in self.shards:
            shard.disk_full = False

    # -- what holds -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What holds at every moment."""
        newest = max(worker.round for worker in self.workers)
        self.lag = max(self.lag, newest - min(shard.durable for shard in self.shards) + 1)
        assert self.lag <= self.setup.keep or self.disk_failed, "a round that can be lost can be sent again"
        room = 2 * self.lag + 2
        for shard in self.shards:
            expected = self.counts[shard.rounds.next]
            assert all(each == expected for each in shard.counters), "each token once"
            assert len(shard.told) <= room
            assert shard.durable <= shard.rounds.next
        assert len(self.coordinator.sequencer) <= room
        assert len(self.coordinator.meetings) <= 4
        for worker in self.workers:
            assert len(worker.kept) <= self.setup.keep
            assert newest - worker.round <= 1, "no worker is ahead by more than a round"

    def state(self) -> str:
        """For people."""
        shards = [(each.rounds.next, each.durable, each.told_now) for each in self.shards]
        workers = [
            (each.round, each.met, [(v.known, v.next, v.durable, v.release) for v in each.views])
            for each in self.workers
        ]
        return f"shards {shards}, workers {workers}, after {'; '.join(self.log[-12:])}"
