"""Who is in the run, and whose each share is."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nlpkernel_zmq.machines.members import Entry, Lease, Members


def three() -> Members:
    members = Members()
    for worker in range(3):
        assert members.join(worker, 10 + worker) is Entry.JOINED
    assert members.open(5) == (0, 1, 2)
    return members


def test_the_same_process_comes_back_and_nothing_changes():
    members = three()
    epoch = members.epoch
    assert members.join(1, 11) is Entry.BACK
    assert members.epoch == epoch
    assert members.leases() == []


def test_a_newer_process_takes_the_place_and_the_older_one_stays_out():
    members = three()
    assert members.join(1, 99) is Entry.NEWER
    assert members.is_current(1, 99)
    assert not members.is_current(1, 11)
    assert members.join(1, 11) is Entry.FENCED
    assert members.is_current(1, 99)
    assert members.leases() == [Lease(5, 1, 0)]
    assert members.join(1, 99) is Entry.BACK
    assert members.lose(1, 11) == []


def test_who_was_counted_as_lost_does_not_come_back():
    members = three()
    members.lose(2, 12)
    assert members.join(2, 12) is Entry.FENCED
    assert 2 not in members.living
    assert members.join(2, 13) is Entry.JOINED


def test_the_shares_of_a_lost_worker_go_to_those_with_the_fewest():
    members = three()
    assert members.lose(0, 10) == [Lease(5, 0, 1)]
    assert members.owners == (1, 1, 2)
    assert members.lose(1, 11) == [Lease(5, 0, 2), Lease(5, 1, 2)]
    assert members.owners == (2, 2, 2)
    assert members.lose(2, 12) == []
    assert members.lose(2, 12) == []


def test_one_who_has_two_shares_gets_no_third_before_the_others():
    members = three()
    members.join(3, 13)
    assert members.open(6) == (0, 1, 2, 3)
    assert members.lose(0, 10) == [Lease(6, 0, 1)]
    assert members.lose(3, 13) == [Lease(6, 3, 2)]


def test_who_came_after_the_beginning_does_nothing_for_the_round():
    members = three()
    members.join(7, 70)
    assert members.lose(0, 10) == [Lease(5, 0, 1)]
    assert members.open(6) == (1, 2, 7)
    members.lose(1, 11)
    assert 0 not in members.owners
    assert members.owners.count(7) + members.owners.count(2) == 3


def test_a_round_waits_where_none_is_left_who_was_there():
    members = three()
    members.join(9, 90)
    for worker in range(3):
        members.lose(worker, 10 + worker)
    assert members.leases() == []
    assert members.owners == (2, 2, 2)
    assert members.open(5) == (9,)


class Membership(RuleBasedStateMachine):
    """Processes come, go, are cut and are replaced at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.members = Members()
        self.epoch = 0
        self.gone: set[tuple[int, int]] = set()
        self.current: dict[int, int] = {}
        self.there: dict[int, int] = {}
        self.fresh = 0
        self.round = -1
        self.number = 0

    def moved(self) -> None:
        assert self.members.epoch > self.epoch
        self.epoch = self.members.epoch

    @rule(worker=st.integers(0, 3))
    def starts(self, worker: int) -> None:
        self.fresh += 1
        entry = self.members.join(worker, self.fresh)
        assert entry is (Entry.NEWER if worker in self.current else Entry.JOINED)
        if worker in self.current:
            self.gone.add((worker, self.current[worker]))
        self.current[worker] = self.fresh
        self.moved()

    @precondition(lambda self: self.fresh)
    @rule(worker=st.integers(0, 3), data=st.data())
    def says_hello_again(self, worker: int, data: st.DataObject) -> None:
        known = sorted(each for who, each in self.gone | set(self.current.items()) if who == worker)
        if known:
            process = data.draw(st.sampled_from(known))
            entry = self.members.join(worker, process)
            assert entry is (Entry.FENCED if (worker, process) in self.gone else Entry.BACK)

    @rule(worker=st.integers(0, 3), older=st.booleans())
    def is_lost(self, worker: int, older: bool) -> None:
        stale = [each for who, each in self.gone if who == worker]
        if older and stale:
            assert self.members.lose(worker, stale[0]) == []
        elif worker in self.current:
            process = self.current.pop(worker)
            self.gone.add((worker, process))
            before = self.members.owners
            self.leased(before, self.members.lose(worker, process))
            self.moved()

    @rule()
    def shares_are_given_away(self) -> None:
        self.leased(self.members.owners, self.members.leases())
        assert self.members.leases() == [], "once is enough"

    @precondition(lambda self: self.current)
    @rule()
    def opens(self) -> None:
        self.round += 1
        assert self.members.open(self.round) == tuple(sorted(self.current))
        self.there, self.number = dict(self.current), len(self.current)

    def able(self) -> set[int]:
        return {worker for worker, process in self.there.items() if self.current.get(worker) == process}

    def leased(self, before: tuple[int, ...], leases: list[Lease]) -> None:
        able, owners = self.able(), list(before)
        for lease in leases:
            assert lease.round == self.round
            assert owners[lease.share] not in able, "nobody loses what it can do"
            assert lease.worker in able
            assert owners.count(lease.worker) == min(owners.count(each) for each in able)
            owners[lease.share] = lease.worker
        assert tuple(owners) == self.members.owners
        if able:
            assert set(owners) <= able, "every share has an owner who can do it"

    @invariant()
    def holds(self) -> None:
        assert self.members.epoch == self.epoch
        assert {worker: process for worker, (_, process) in self.members.living.items()} == self.current
        assert len(self.members.owners) == self.number
        assert all(self.members.is_current(*each) for each in self.current.items())
        assert not any(self.members.is_current(*each) for each in self.gone)


Membership.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMembership = Membership.TestCase
