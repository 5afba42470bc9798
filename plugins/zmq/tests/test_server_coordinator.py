"""The coordinator and workers of other machines: waited for, without a part in meetings, and refused once lost."""

from __future__ import annotations

from typing import Any

import pytest

from nlpkernel_zmq.machines.leases import Leases
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.server.coordinator import Coordinator, Limits
from nlpkernel_zmq.wire import messages as m

#: By number: worker 0 is here, worker 1 joins.
WHO = {0: b"zero", 1: b"one"}
ELSEWHERE = ("tcp://192.0.2.1:1",)


class Desk:
    """A coordinator, what it said to whom, and the owners that it decided on."""

    def __init__(self, *, waits: bool = True, here: int = 1, leases: Leases | None = None) -> None:
        self.said: list[tuple[bytes, m.Message]] = []
        self.notices: list[str] = []
        self.owners: list[tuple[int, ...]] = []
        self.coordinator = Coordinator(
            2,
            ["ipc:///here"],
            Limits(beat=0.5, silence=10.0, stall=60.0),
            generation=1,
            send=self._send,
            decided=self._decided,
            notice=self.notices.append,
            here=here,
            waits=waits,
            leases=leases,
        )

    def _send(self, who: bytes, message: m.Message, payload: Any) -> None:
        self.said.append((who, message))

    def _decided(self, decision: Decision, epoch: int, owners: tuple[int, ...]) -> None:
        self.owners.append(owners)

    def hello(self, worker: int, role: str = "worker") -> None:
        who = WHO[worker] if role == "worker" else b"pulse"
        hello = m.Hello(run="r", role=role, number=worker, incarnation=worker, release="1", host="h")
        self.coordinator.hello(who, hello, 0.0, ELSEWHERE if worker else None)

    def says(self, worker: int, message: m.Message, payload: bytes | None = None) -> None:
        self.coordinator.handle(WHO[worker], message, None if payload is None else memoryview(payload), 1.0)

    def heard(self, worker: int, kind: type[m.Message]) -> list[Any]:
        return [message for who, message in self.said if who == WHO[worker] and isinstance(message, kind)]


def test_the_run_waits_for_who_joins_and_each_learns_where_the_servers_are() -> None:
    desk = Desk()
    desk.hello(0)
    assert desk.said == [(WHO[0], m.Pong(missing=("worker 1",)))], "it is told whom it waits for"
    desk.hello(1)
    desk.hello(0)
    (here,), (there,) = desk.heard(0, m.Welcome), desk.heard(1, m.Welcome)
    assert (here.servers, here.began) == (("ipc:///here",), False)
    assert (there.servers, there.began) == (ELSEWHERE, True)


def test_one_that_does_not_wait_begins_without() -> None:
    desk = Desk(waits=False)
    desk.hello(0)
    assert len(desk.heard(0, m.Welcome)) == 1


def test_the_first_round_is_over_once_who_joined_is_ready_and_owns_a_share_of_the_next() -> None:
    desk = Desk()
    desk.hello(1)
    desk.hello(0)
    desk.coordinator.ready(0, 0, Told(1.0, True), 0)
    assert desk.owners == []
    desk.says(1, m.Enlist())
    assert desk.owners == [(0, 1)]


@pytest.mark.parametrize("early", [True, False])
def test_who_leaves_early_is_not_waited_for(early: bool) -> None:
    desk = Desk()
    desk.hello(1)
    desk.hello(0)
    desk.coordinator.ready(0, 0, Told(1.0, True), 0)
    desk.says(1, m.Leave(early=early))
    assert desk.owners == ([(0,)] if early else [])


def test_who_joined_hears_what_is_agreed_on_and_is_not_waited_for_at_meetings() -> None:
    desk = Desk()
    desk.hello(1)
    desk.hello(0)
    desk.says(1, m.Meet(key="-1:1"), b"other")
    assert desk.heard(1, m.Met) == []
    desk.says(0, m.Meet(key="-1:1"), b"own")
    (met,) = desk.heard(1, m.Met)
    assert (met.members, met.sizes) == ((0,), (3,))
    desk.says(1, m.Enlist())
    desk.coordinator.ready(0, 0, Told(1.0, True), 0)
    desk.coordinator.ready(0, 1, Told(1.0, True), 1)
    desk.says(0, m.Meet(key="1:1"), b"own")
    assert [met.key for met in desk.heard(0, m.Met)] == ["-1:1", "1:1"]


def test_who_was_counted_as_lost_and_asks_again_is_refused() -> None:
    desk = Desk()
    desk.hello(1)
    desk.hello(1, "pulse")
    desk.says(1, m.Ping(phase="waiting", step=0, moves=0))
    assert desk.heard(1, m.Reject) == []
    desk.coordinator.tick(11.0)
    desk.says(1, m.Ping(phase="waiting", step=0, moves=0))
    assert [reject.code for reject in desk.heard(1, m.Reject)] == ["fenced"]


@pytest.mark.parametrize(("staleness", "named"), [(1, True), (None, False)])
def test_a_worker_that_holds_the_others_back_is_named(staleness: int | None, named: bool) -> None:
    desk = Desk(waits=False, here=2, leases=Leases(staleness))
    desk.hello(0)
    desk.hello(1)
    desk.says(0, m.Hold(hold=False, begin=0))
    desk.says(1, m.Claim(end=100))
    for window in (1, 2, 3):
        desk.says(0, m.Claim(end=100))
        if desk.heard(0, m.Claimed):
            desk.coordinator.ready(0, window, Told(1.0, True), 0)
    assert len(desk.heard(0, m.Claimed)) == (2 if staleness else 3)
    for now in range(32):
        desk.coordinator.tick(float(now))
    assert len(desk.notices) == named
    if named:
        assert "worker 1 is the slowest" in desk.notices[0]
        assert "100% of the last 30 s" in desk.notices[0]
