"""A shard as its messages see it, without sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest
import torch

from nlpkernel_zmq.layout import Parameter
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.server.model import Schema
from nlpkernel_zmq.server.shard import Shard
from nlpkernel_zmq.server.snapshots import Snapshots
from nlpkernel_zmq.wire import messages as m

COUNT, CHUNK = 32, 64


def sgd(groups: Any) -> torch.optim.Optimizer:
    made = torch.optim.SGD([tensor for group in groups for tensor in group.tensors], lr=1.0)
    for group in made.param_groups:
        group["peak"] = 1.0
    return made


class Talk:
    """One shard of 32 numbers in two pieces, and what it says to two workers and the coordinator."""

    def __init__(self, folder: Path) -> None:
        self.snapshots = Snapshots(folder, "launch")
        self.start()
        schema = Schema(
            (Parameter("w", (COUNT,), "float32", 4),), ((("w",), False, frozenset()),), 1, False, None, CHUNK
        )
        plain = msgpack.packb(schema.plain())
        first = self.shard
        first.handle(
            b"0", m.Put(what="schema", start=0, stop=len(plain), total=len(plain)), memoryview(plain)
        )
        first.handle(b"0", m.Begin(what="schema"), None)
        size = 4 * COUNT
        first.handle(b"0", m.Put(what="parameters", start=0, stop=size, total=size), memoryview(bytes(size)))
        first.handle(b"0", m.Begin(what="state"), None)

    def start(self) -> None:
        """Start it, or start it again."""
        self.sent: list[tuple[bytes, m.Message]] = []
        self.told: list[Told] = []
        self.shard = Shard(
            0,
            self.snapshots,
            sgd,
            workers=2,
            send=lambda who, message, payload: self.sent.append((who, message)),
            ready=lambda round, told, number: self.told.append(told),
            notice=lambda text: None,
            share_memory=False,
        )
        self.shard.recover()
        for worker in range(2):
            who = str(worker).encode()
            hello = m.Hello(run="r", role="worker", number=worker, incarnation=worker, release="", host="")
            self.shard.hello(who, hello)
            self.shard.welcome(who)

    def push(self, round: int, worker: int, value: float | None) -> None:
        """A share, all of the same number; None: an empty one."""
        who = str(worker).encode()
        data = memoryview(torch.full((COUNT,), value or 0.0).view(torch.uint8).numpy())
        for start in range(0, 4 * COUNT, CHUNK) if value is not None else ():
            push = m.Push(round=round, share=worker, of=2, start=start, stop=start + CHUNK)
            self.shard.handle(who, push, data[start : start + CHUNK])
        self.shard.handle(who, m.End(round=round, share=worker, of=2, step=round, empty=value is None), None)

    def commit(self, round: int) -> None:
        self.shard.commit(Decision(round, 1.0, True, round), 0, (0, 1))

    def releases(self) -> list[tuple[bytes, int]]:
        return [(who, message.round) for who, message in self.sent if isinstance(message, m.Release)]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_empty_share_changes_nothing_of_what_is_told_whenever_it_ends(talk, order):
    """Also where it is the one that makes the round complete: all pieces are added up before the norm is taken."""
    for round in range(2):
        for worker in order:
            talk.push(round, worker, 2.0 + round if worker == 0 else None)
        assert talk.told[-1] == Told(pytest.approx(COUNT * (2.0 + round) ** 2), True)
        talk.commit(round)
    assert torch.equal(talk.shard.model.parameters[0], torch.full((COUNT,), -5.0))


def test_pieces_are_told_once_however_often_they_come(talk):
    for _ in range(3):
        talk.push(0, 0, 1.0)
    for _ in range(3):
        talk.push(0, 1, 3.0)
    assert talk.told == [Told(pytest.approx(COUNT * 16.0), True)]


def test_a_shard_that_was_started_again_says_the_release_that_its_workers_may_have_missed(talk):
    talk.push(0, 0, 1.0)
    talk.push(0, 1, 1.0)
    talk.commit(0)
    talk.start()
    assert talk.shard.next == 1
    assert talk.releases() == [(b"0", 0), (b"1", 0)]


def test_a_commit_that_comes_twice_or_too_early_changes_nothing(talk):
    talk.commit(0)
    assert talk.shard.next == 0
    talk.push(0, 0, 1.0)
    talk.commit(0)
    talk.push(0, 1, 1.0)
    talk.commit(1)
    assert talk.shard.next == 0
    talk.commit(0)
    talk.commit(0)
    assert talk.shard.next == 1
    assert torch.equal(talk.shard.model.parameters[0], torch.full((COUNT,), -2.0))


def test_who_waits_is_told_whose_share_is_missing(talk):
    for round in range(2):
        talk.push(round, 0, 1.0)
        talk.shard.handle(b"0", m.Ping(phase="", step=0, moves=0), None)
        pong = talk.sent[-1][1]
        assert isinstance(pong, m.Pong)
        assert pong.missing == ("worker 1",)
        talk.push(round, 1, 1.0)
        talk.commit(round)
