"""The coordinator and the shards of a run of the protocol in memory. See `network`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel_zmq.machines.meetings import Meetings
from nlpkernel_zmq.machines.rounds import Rounds, Verdict
from nlpkernel_zmq.machines.sequencer import Sequencer, Told

from .network_links import Connection, Link, Message, answer

if TYPE_CHECKING:
    from .network import World


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
