"""The protocol of `sync` in memory, around the machines that run behind the sockets, with a network that fails.

Workers, shards and a coordinator talk over connections as ZeroMQ has them: in order, and without loss, until a
connection is cut. Then what was under way is lost; what had arrived may still be read, also after the first messages of
the next connection; and the server does not know the client any more, which has to say hello again. A shard that
crashes goes back to its snapshot, a coordinator that crashes knows nothing.

The token test: the gradient of each piece of each share of a round is one token with its name. What a shard has counted
is at every moment exactly what `next` rounds hold.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from nlpkernel_zmq.machines.meetings import Meetings
from nlpkernel_zmq.machines.rounds import Rounds, Verdict
from nlpkernel_zmq.machines.sequencer import Sequencer, Told

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


class Coordinator:
    """Mirrors `server.coordinator`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.peers: dict[Connection, tuple[str, int]] = {}
        self.crash()

    def crash(self) -> None:
        self.peers.clear()
        self.sequencer = Sequencer(self.world.setup.shards)
        self.meetings = Meetings()

    def receive(self, connection: Connection, message: Message) -> None:
        if message[0] == "hello":
            for other in [each for each, peer in self.peers.items() if peer == message[1:]]:
                del self.peers[other]
            self.peers[connection] = (message[1], message[2])
            answer(connection, "welcome")
            return
        if connection not in self.peers:
            answer(connection, "nack")
            return
        match message:
            case ("ready", shard, round, told, durable):
                decision = self.sequencer.ready(shard, round, told)
                least = self.sequencer.durable(shard, durable)
                if decision is not None:
                    self.say("shard", "commit", decision, least)
            case ("meet", key, word):
                worker = self.peers[connection][1]
                found = self.meetings.say(key, worker, word, range(self.world.setup.workers))
                if found is not None:
                    self.say("worker", "met", key, dict(found))

    def say(self, role: str, *message: Any) -> None:
        for connection, (each, _) in self.peers.items():
            if each == role:
                answer(connection, *message)


@attrs.frozen
class Snapshot:
    """All that a shard has on disk."""

    next: int
    counters: tuple[tuple[int, ...], ...]
    told: dict[int, Told]
    last: Message | None


class Shard:
    """Mirrors `server.shard`, with counters for a model."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        setup = world.setup
        self.disk_full = False
        self.snapshot = Snapshot(0, ((0,) * setup.workers,) * setup.chunks, {}, None)
        self.up = Link(self, world.coordinator)
        self.crash()

    def crash(self) -> None:
        held = self.snapshot
        self.sessions: dict[Connection, int] = {}
        self.rounds = Rounds(self.world.setup.chunks, next=held.next)
        self.counters = [list(each) for each in held.counters]
        self.told = dict(held.told)
        self.last = held.last
        self.durable, self.protected = held.next, True
        self.forget_round()

    def forget_round(self) -> None:
        self.staged: dict[tuple[int, int], Message] = {}
        self.sums: dict[int, list[Message]] = {}
        self.ends: set[tuple[int, int]] = set()
        self.told_now = False

    # -- of workers -----------------------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: Message) -> None:
        if message[0] == "hello":
            worker = message[2]
            for other in [each for each, one in self.sessions.items() if one == worker]:
                del self.sessions[other]
            self.sessions[connection] = worker
            answer(connection, "welcome", self.rounds.next)
            if self.last is not None:
                answer(connection, *self.last)
            return
        if connection not in self.sessions:
            answer(connection, "nack", "hello", -1)
            return
        match message:
            case ("push", round, share, of, chunk, token):
                verdict = self.rounds.push(round, share, of, chunk)
                if self.counts(connection, verdict):
                    self.staged[share, chunk] = token
                    self.add_up(chunk)
                    self.ready_if_complete()
            case ("end", round, share, of, empty):
                verdict = self.rounds.end(round, share, of, empty)
                if self.counts(connection, verdict):
                    self.ends.add((round, share))
                    for chunk in range(self.rounds.chunks) if empty else ():
                        self.add_up(chunk)
                    self.ready_if_complete()

    def counts(self, connection: Connection, verdict: Verdict) -> bool:
        assert verdict is not Verdict.WRONG, "nobody contradicts another"
        if verdict is Verdict.EARLY:
            answer(connection, "nack", "early", self.rounds.next)
        return verdict is Verdict.TAKE

    def add_up(self, chunk: int) -> None:
        if self.rounds.full(chunk):
            assert chunk not in self.sums, "a piece is added up once"
            self.sums[chunk] = [self.staged.pop((share, chunk)) for share in self.rounds.present(chunk)]

    def ready_if_complete(self) -> None:
        if self.told_now or not self.rounds.complete:
            return
        round, setup = self.rounds.next, self.world.setup
        assert not self.staged
        assert self.ends == {(round, share) for share in range(setup.workers)}, "what ends a share counts too"
        for chunk in range(setup.chunks):
            expected = [
                (round, share, chunk) for share in range(setup.workers) if (round, share) not in setup.empty
            ]
            assert self.sums[chunk] == expected, "each share once, in their order"
        self.world.had.setdefault(round, set()).add(self.number)
        self.told_now = True
        self.told[round] = setup.told(round, self.number)
        self.tell(round)

    # -- of the coordinator -----------------------------------------------------------------------------------------

    def tell(self, round: int) -> None:
        self.up.send("ready", self.number, round, self.told[round], self.durable)

    def from_server(self, link: Link, message: Message) -> None:
        match message:
            case ("nack",):
                link.send("hello", "shard", self.number)
            case ("welcome",):
                for round in sorted(self.told):
                    self.tell(round)
            case ("commit", decision, least):
                for old in [each for each in self.told if each < least]:
                    del self.told[old]
                if decision.round == self.rounds.next and self.told_now:
                    self.apply(decision)

    def beat(self, link: Link) -> None:
        link.send("ping")

    def apply(self, decision: Any) -> None:
        setup, round = self.world.setup, decision.round
        assert len(self.world.had[round]) == setup.shards, "all shards had all of it"
        assert decision == self.world.decisions.setdefault(round, decision), "one decision for a round"
        square = math.fsum(setup.told(round, shard).square for shard in range(setup.shards))
        assert (decision.finite, decision.norm) == (setup.applied(round), math.sqrt(square))
        if decision.finite:
            for chunk, tokens in self.sums.items():
                for _, share, _ in tokens:
                    self.counters[chunk][share] += 1
        self.rounds.commit()
        self.forget_round()
        if self.rounds.next - self.durable >= setup.every:
            self.protected = not self.disk_full
            self.world.disk_failed |= self.disk_full
            if self.protected:
                self.durable = self.rounds.next
        self.last = (
            "release",
            round,
            self.durable if self.protected else -1,
            tuple(map(tuple, self.counters)),
        )
        if self.durable == self.rounds.next:
            self.snapshot = Snapshot(
                self.rounds.next, tuple(map(tuple, self.counters)), dict(self.told), self.last
            )
        for connection in self.sessions:
            answer(connection, *self.last)


@attrs.define(eq=False)
class View:
    """A shard as a worker knows it."""

    link: Link
    known: bool = False
    next: int = 0
    durable: int = 0
    release: int = -1
    held: tuple[tuple[int, ...], ...] | None = None


class Worker:
    """Pushes its share of each round, keeps what a shard may have to have again, and goes on once all have released it.

    A shard that came back gets one round, and the next one with the release of that: more would be refused as early.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.round = -1
        self.kept: set[int] = set()
        #: What of the round at hand is not sent yet, as (shard, message).
        self.left: deque[tuple[int, Message]] = deque()
        self.control = Link(self, world.coordinator)
        self.joined = False
        self.said: list[tuple[str, bytes]] = []
        self.met = 0
        self.views = [View(Link(self, shard)) for shard in world.shards]

    @property
    def done(self) -> bool:
        return self.round == self.world.setup.rounds - 1 and not self.left and self.released

    @property
    def released(self) -> bool:
        return all(view.release >= self.round for view in self.views)

    @property
    def due(self) -> bool:
        """Whether it has to meet the others before it goes on."""
        return self.met * self.world.setup.meet <= self.round + 1

    @property
    def able(self) -> bool:
        """Whether it can do something of its own."""
        if self.left:
            return True
        if self.done or not self.released:
            return False
        if self.due:
            return len(self.said) == 0 or self.said[-1][0] != str(self.met)
        old = self.round + 1 - self.world.setup.keep
        return old not in self.kept or all(view.durable == -1 or view.durable > old for view in self.views)

    def act(self) -> None:
        if self.left:
            shard, message = self.left.popleft()
            view = self.views[shard]
            if view.known and (self.world.setup.eager or view.next == self.round):
                view.link.send(*message)
        elif self.due:
            self.said = [*self.said[-1:], (str(self.met), f"{self.number}-{self.met}".encode())]
            if self.joined:
                self.control.send("meet", *self.said[-1])
        else:
            self.begin()

    def begin(self) -> None:
        self.kept.discard(self.round + 1 - self.world.setup.keep)
        self.round += 1
        self.kept.add(self.round)
        expected = tuple(self.world.counts[self.round])
        for view in self.views:
            if view.held is not None:
                assert set(view.held) <= {expected}, "it computes with the parameters after the round before"
            assert (view.held is None) == (self.round == 0)
        whole = list(self.share(self.round))
        self.left.extend((shard, message) for message in whole for shard in range(len(self.views)))

    def share(self, round: int) -> Iterator[Message]:
        setup, share = self.world.setup, self.number
        empty = (round, share) in setup.empty
        for chunk in range(0 if empty else setup.chunks):
            yield ("push", round, share, setup.workers, chunk, (round, share, chunk))
        yield ("end", round, share, setup.workers, empty)

    def again(self, view: View) -> None:
        """Send again what a shard lacks of its next round."""
        if view.next > self.round:
            return
        assert view.next in self.kept, "what a shard may need has not been dropped"
        later = {message for shard, message in self.left if self.views[shard] is view}
        for message in self.share(view.next):
            if view.next < self.round or message not in later:
                view.link.send(*message)

    def from_server(self, link: Link, message: Message) -> None:
        if link is self.control:
            self.from_coordinator(message)
            return
        view = next(each for each in self.views if each.link is link)
        match message:
            case ("welcome", round):
                view.known, view.next = True, round
                self.again(view)
            case ("nack", "hello", _):
                view.known = False
                link.send("hello", "worker", self.number)
            case ("nack", "early", round):
                view.next = round
                self.again(view)
            case ("release", round, durable, held):
                if round > view.release:
                    view.release, view.held = round, held
                view.durable = durable
                view.next = round + 1
                self.again(view)

    def from_coordinator(self, message: Message) -> None:
        match message:
            case ("welcome",):
                self.joined = True
                for key, word in self.said:
                    self.control.send("meet", key, word)
            case ("nack",):
                self.joined = False
                self.control.send("hello", "worker", self.number)
            case ("met", key, words):
                assert words == {each: f"{each}-{key}".encode() for each in range(self.world.setup.workers)}
                if int(key) == self.met and self.said and self.said[-1][0] == key:
                    self.met += 1

    def beat(self, link: Link) -> None:
        known = self.joined if link is self.control else next(v.known for v in self.views if v.link is link)
        link.send(*(("ping",) if known else ("hello", "worker", self.number)))


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
