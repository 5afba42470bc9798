"""A worker is gone, and then a server goes back: with real shards and a real coordinator, and no sockets."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import msgpack
import pytest
import torch

from nlpkernel_zmq.layout import Parameter
from nlpkernel_zmq.machines.leases import Leases
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.server.coordinator import Coordinator, Limits
from nlpkernel_zmq.server.free import FreeShard
from nlpkernel_zmq.server.model import Schema
from nlpkernel_zmq.server.shard import Shard
from nlpkernel_zmq.server.snapshots import Snapshots
from nlpkernel_zmq.wire import messages as m

from .test_server_shard import sgd

#: Numbers of each shard, in one piece, and rounds between two snapshots.
COUNT, EVERY = 16, 32
SIZE = 4 * COUNT


class Hall:
    """Two shards, the coordinator beside the first, and workers 0 and 1, who push what they are told to."""

    def __init__(self, folder: Path, *, free: bool) -> None:
        self.free = free
        self.snapshots = [Snapshots(folder / str(number), "launch") for number in range(2)]
        self.incarnations = {0: 1, 1: 1}
        self.said: list[tuple[bytes, m.Message]] = []
        self.up: deque[tuple[int, m.Message]] = deque()
        self.down: deque[m.Message] = deque()
        self.owners: tuple[int, ...] = ()
        self.shards = [self._shard(0), self._shard(1)]
        self.coordinator = Coordinator(
            2,
            ["ipc:///zero", "ipc:///one"],
            Limits(beat=0.5, silence=10.0, stall=60.0),
            generation=1,
            send=self._send,
            decided=self._decided,
            keep=lambda number: self.shards[0].keep(number),
            notice=lambda text: None,
            leases=Leases() if free else None,
            applied=lambda window: self.shards[0].is_applied(window),
        )
        self.meet_shard()
        for worker in range(2):
            self.hello(worker)
        self._begin()

    def _shard(self, number: int) -> Shard:
        def ready(round: int, told: Told, known: int) -> None:
            shard = self.shards[number]
            self.up.append(
                (
                    number,
                    m.Ready(
                        round=round,
                        square=told.square,
                        finite=told.finite,
                        shard=number,
                        durable=shard.safe,
                        number=known,
                    ),
                )
            )

        made = (FreeShard if self.free else Shard)(
            number,
            self.snapshots[number],
            sgd,
            workers=2,
            send=lambda who, message, payload: None,
            ready=ready,
            notice=lambda text: None,
            share_memory=False,
        )
        made.recover()
        return made

    def _begin(self) -> None:
        parameters = (Parameter("a", (COUNT,), "float32", 4), Parameter("b", (COUNT,), "float32", 4))
        schema = Schema(parameters, ((("a", "b"), False, frozenset()),), 2, False, None, SIZE)
        plain = msgpack.packb(schema.plain())
        for shard in self.shards:
            whole = m.Put(what="schema", start=0, stop=len(plain), total=len(plain))
            shard.handle(b"0", whole, memoryview(plain))
            shard.handle(b"0", m.Begin(what="schema"), None)
            zeros = m.Put(what="parameters", start=0, stop=SIZE, total=SIZE)
            shard.handle(b"0", zeros, memoryview(bytes(SIZE)))
            shard.handle(b"0", m.Begin(what="state", every=EVERY), None)
        if self.free:
            self.coordinator.handle(b"0", m.Hold(hold=False, begin=0), None, 0.0)

    def _send(self, who: bytes, message: m.Message, payload: Any) -> None:
        if who == b"shard":
            self.down.append(message)
        else:
            self.said.append((who, message))

    def _decided(self, decision: Decision, epoch: int, owners: tuple[int, ...]) -> None:
        self.owners = owners
        self.shards[0].commit(decision, epoch, owners)

    # -- what happens -------------------------------------------------------------------------------------------------

    def hello(self, worker: int) -> None:
        """A worker says hello to all."""
        who = str(worker).encode()
        hello = m.Hello(
            run="r", role="worker", number=worker, incarnation=self.incarnations[worker], release="", host=""
        )
        self.coordinator.hello(who, hello, 0.0)
        for shard in self.shards:
            shard.hello(who, hello)
        self.deliver()

    def meet_shard(self) -> None:
        """The second shard says hello to the coordinator, and again what it told."""
        hello = m.Hello(run="r", role="shard", number=1, incarnation=1, release="", host="")
        self.coordinator.hello(b"shard", hello, 0.0)
        self.shards[1].say_again()
        self.deliver()

    def deliver(self) -> None:
        """Let all that is under way between the shards arrive."""
        while self.up or self.down:
            while self.up:
                shard, message = self.up.popleft()
                assert isinstance(message, m.Ready)
                if shard:
                    self.coordinator.handle(b"shard", message, None, 0.0)
                else:
                    told = Told(message.square, message.finite)
                    self.coordinator.ready(0, message.round, told, message.durable, message.number)
            while self.down:
                each = self.down.popleft()
                if isinstance(each, m.Commit):
                    decision = Decision(each.round, each.norm, each.finite, each.number)
                    self.shards[1].commit(decision, each.epoch, each.owners)
                elif isinstance(each, m.Keep):
                    self.shards[1].keep(each.number)

    def claim(self, worker: int) -> int:
        """The window that a worker is to do."""
        who = str(worker).encode()
        self.coordinator.handle(who, m.Claim(end=100), None, 0.0)
        (*_, last) = [each for to, each in self.said if to == who and isinstance(each, m.Claimed)]
        return last.window

    def push(
        self,
        worker: int,
        round: int,
        *,
        share: int = 0,
        of: int = 1,
        shards: Any = (0, 1),
        deliver: bool = True,
    ) -> None:
        """A share, or a window, whole."""
        who, data = str(worker).encode(), torch.ones(COUNT).view(torch.uint8).numpy()
        for shard in shards:
            push = m.Push(round=round, share=share, of=of, start=0, stop=SIZE)
            self.shards[shard].handle(who, push, memoryview(data))
            self.shards[shard].handle(who, m.End(round=round, share=share, of=of, step=round), None)
        if deliver:
            self.deliver()

    def lose(self) -> None:
        """Worker 1 is gone, and another process has its number."""
        self.incarnations[1] += 1
        self.hello(1)

    def restart(self) -> None:
        """The second server is killed, and started again."""
        self.shards[1] = self._shard(1)
        for worker in self.incarnations:
            hello = m.Hello(
                run="r", role="worker", number=worker, incarnation=1, release="", host="", took_part=True
            )
            self.shards[1].hello(str(worker).encode(), hello)
        self.meet_shard()

    def beats(self, times: int = 20) -> None:
        """The second server beats so often."""
        for _ in range(times):
            ping = m.Ping(phase="serving", step=self.shards[1].next, moves=0)
            self.coordinator.handle(b"shard", ping, None, 0.0)
            self.coordinator.stands(0, self.shards[0].next)
            self.deliver()

    def heard(self, worker: int, kind: type[m.Message]) -> list[Any]:
        """What a worker was told of a kind."""
        return [each for to, each in self.said if to == str(worker).encode() and isinstance(each, kind)]


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    made = Hall(tmp_path, free=True)
    for _ in range(3):
        for worker in range(2):
            made.push(worker, made.claim(worker))
    assert [shard.next for shard in made.shards] == [6, 6]
    return made


def test_without_rounds_what_a_worker_that_is_gone_pushed_is_on_disk(hall: Hall) -> None:
    assert [shard.durable for shard in hall.shards] == [0, 0]
    hall.lose()
    assert [shard.durable for shard in hall.shards] == [6, 6]
    hall.restart()
    assert hall.shards[1].next == 6
    hall.beats()
    assert hall.heard(0, m.Reject) == []


def test_without_rounds_what_was_complete_when_its_worker_was_lost_is_kept_once_it_is_made(
    hall: Hall,
) -> None:
    hall.push(0, hall.claim(0))
    # The shards have all of it; that they do the coordinator hears only later.
    hall.push(1, hall.claim(1), deliver=False)
    assert [shard.next for shard in hall.shards] == [7, 7]
    hall.lose()
    assert [shard.durable for shard in hall.shards] == [8, 8]


def test_without_rounds_a_server_that_has_to_have_what_is_gone_ends_the_run(hall: Hall) -> None:
    hall.restart()
    hall.push(0, 0)
    assert hall.shards[1].next == 1, "window 1 was worker 1's"
    hall.beats()
    assert hall.heard(0, m.Reject) == [], "it may push it again"
    hall.lose()
    hall.beats()
    told = hall.heard(0, m.Reject)
    assert {each.code for each in told} == {"lost"}
    assert (
        "server 1 came back at update 2 and has to have window 2 again, whose worker is gone" in told[0].text
    )


def test_without_rounds_a_server_that_gets_all_again_goes_on(hall: Hall) -> None:
    hall.restart()
    for window in range(6):
        hall.push(window % 2, window)
        hall.beats()
    assert hall.shards[1].next == 6
    assert hall.heard(0, m.Reject) == []


def test_in_rounds_what_a_worker_that_is_gone_pushed_is_on_disk(tmp_path: Path) -> None:
    hall = Hall(tmp_path, free=False)
    for round in range(3):
        for worker in range(2):
            hall.push(worker, round, share=worker, of=2)
    assert [shard.durable for shard in hall.shards] == [0, 0]
    hall.lose()
    # Its share of the round at hand may take another one long.
    assert [(shard.next, shard.durable) for shard in hall.shards] == [(3, 3), (3, 3)]


def test_in_rounds_the_share_of_one_who_is_gone_is_asked_for_of_whoever_may_have_done_it(
    tmp_path: Path,
) -> None:
    hall = Hall(tmp_path, free=False)
    for round in range(3):
        for worker in range(2):
            hall.push(worker, round, share=worker, of=2)
    hall.restart()
    hall.push(0, 0, share=0, of=2, shards=[1])
    hall.beats()
    assert hall.heard(0, m.Lease) == [], "worker 1 may push it again"
    hall.lose()
    assert hall.heard(0, m.Lease) == [m.Lease(round=3, share=1)]
    hall.beats()
    assert m.Lease(round=0, share=1) in hall.heard(0, m.Lease)
