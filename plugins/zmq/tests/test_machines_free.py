"""Windows that workers push each for itself: who computes which, and the one order in which all shards apply them."""

from __future__ import annotations

import copy
import random
from collections import Counter, deque

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from nlpkernel_zmq.machines.leases import Leases
from nlpkernel_zmq.machines.order import Order
from nlpkernel_zmq.machines.rounds import Verdict
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.machines.windows import Windows

#: Windows without end.
END = 10**9
TAKE, KNOWN, WRONG = Verdict.TAKE, Verdict.KNOWN, Verdict.WRONG


def push(windows: Windows, window: int) -> None:
    """All of a window."""
    for chunk in range(windows.chunks):
        assert windows.push(window, chunk) is TAKE
    assert windows.end(window, False) is TAKE


# -- windows of a shard -------------------------------------------------------------------------------------------


def test_windows_are_applied_in_the_order_of_their_numbers_and_not_of_their_coming():
    windows = Windows(2, 8)
    for window in (3, 1, 0):
        push(windows, window)
    windows.number(1, 1)
    assert windows.due() is None
    windows.number(3, 0)
    assert windows.due() == 3
    with pytest.raises(AssertionError, match="in the order of their numbers"):
        windows.commit(1)
    windows.commit(3)
    assert windows.due() == 1
    windows.commit(1)
    assert (windows.next, windows.floor, windows.applied) == (2, 0, {1, 3})
    windows.number(0, 2)
    windows.commit(0)
    assert (windows.next, windows.floor, windows.applied) == (3, 2, {3})


def test_a_window_that_is_numbered_before_it_is_there_waits():
    windows = Windows(1, 8)
    windows.number(0, 0)
    assert windows.due() is None
    assert windows.push(0, 0) is TAKE
    assert windows.due() is None
    assert windows.end(0, False) is TAKE
    assert windows.due() == 0


def test_a_window_that_was_applied_is_known_for_ever():
    windows = Windows(1, 8, next=5, floor=3, applied={4})
    for window in (0, 2, 4):
        assert windows.is_applied(window)
        assert windows.push(window, 0) is KNOWN
        assert windows.end(window, True) is KNOWN
    push(windows, 3)
    before = copy.deepcopy(windows)
    windows.number(3, 4)
    assert windows == before, "the number is one of before"
    assert windows.due() is None
    windows.number(3, 5)
    windows.commit(3)
    assert (windows.floor, windows.applied) == (5, set())


def test_only_so_many_windows_are_under_way():
    windows = Windows(1, 2)
    assert windows.push(4, 0) is TAKE
    assert windows.push(9, 0) is TAKE
    assert windows.push(5, 0) is WRONG
    assert windows.push(4, 0) is KNOWN
    assert windows.push(4, 0, source=1) is WRONG


def test_a_number_that_was_not_acted_on_may_be_given_anew():
    windows = Windows(1, 8)
    push(windows, 4)
    windows.number(4, 1)
    windows.renumber()
    push(windows, 2)
    windows.number(2, 0)
    windows.commit(2)
    assert windows.due() is None
    windows.number(4, 1)
    assert windows.due() == 4


def test_pieces_of_two_processes_do_not_mix_and_the_first_whole_window_counts():
    windows = Windows(2, 8)
    for chunk in (0, 1):
        for source in (7, 8):
            assert windows.push(0, chunk, source) is TAKE
            assert windows.push(0, chunk, source) is KNOWN
    assert not windows.complete(0)
    windows.end(0, False, 8)
    assert windows.complete(0)
    windows.end(0, False, 7)
    assert windows.source(0) == 8
    windows.number(0, 0)
    windows.commit(0)
    assert windows.push(0, 0, source=7) is KNOWN


# -- leases -------------------------------------------------------------------------------------------------------


def test_a_window_is_given_to_one_and_said_again_to_who_asks_again():
    leases = Leases()
    leases.join(0)
    leases.join(1)
    assert [leases.claim(0, END), leases.claim(1, END), leases.claim(0, END)] == [0, 1, 0]
    leases.done(0, 0)
    leases.done(1, 0)
    assert [leases.claim(0, END), leases.claim(1, END)] == [2, 1]


def test_the_window_of_one_who_is_gone_is_the_next_that_is_given():
    leases = Leases()
    for worker in range(3):
        leases.join(worker)
        leases.claim(worker, END)
    assert [leases.leave(1), leases.leave(0), leases.leave(0)] == [1, 0, None]
    assert not leases.quiet
    leases.done(2, 2)
    assert leases.claim(2, END) == 0
    leases.done(2, 0)
    assert leases.claim(2, END) == 1
    leases.done(2, 1)
    assert leases.quiet


def test_who_is_too_far_ahead_waits_for_the_slowest():
    leases = Leases(staleness=1)
    leases.join(0)
    leases.join(1)
    slow = leases.claim(1, END)
    for _ in range(2):
        window = leases.claim(0, END)
        assert window is not None
        leases.done(0, window)
    leases.join(0)
    assert leases.ahead(0) == 2
    assert leases.claim(0, END) is None
    leases.done(1, slow)
    assert leases.claim(0, END) is not None


def test_who_comes_in_later_holds_nobody_back():
    leases = Leases(staleness=0)
    leases.join(0)
    for _ in range(5):
        leases.done(0, leases.claim(0, END))
    leases.join(1)
    assert leases.ahead(0) == 0
    leases.join(1)
    assert leases.clocks == {0: 5, 1: 5}


def test_nothing_is_given_out_while_it_is_held_back():
    leases = Leases(until=1)
    leases.join(0)
    leases.join(1)
    assert leases.claim(0, END) == 0
    assert leases.claim(1, END) is None
    leases.leave(0)
    assert leases.claim(1, END) == 0, "what is before is done by another"
    leases.until = None
    leases.done(1, 0)
    assert leases.claim(1, END) == 1


def test_a_run_ends_once_nobody_is_at_a_window_any_more():
    leases = Leases()
    leases.join(0)
    leases.join(1)
    assert [leases.claim(0, 2), leases.claim(1, 2)] == [0, 1]
    leases.done(0, 0)
    assert leases.claim(0, 2) is None, "the other one may still be lost"
    leases.leave(1)
    assert leases.claim(0, 2) == 1
    leases.done(0, 1)
    assert leases.claim(0, 2) == -1
    assert leases.claim(0, 3) == 2


def test_a_coordinator_that_was_started_again_gives_out_what_nobody_says_to_have():
    leases = Leases()
    leases.restore(3, [4, 7])
    for worker in range(3):
        leases.join(worker)
    leases.holds(0, 5)
    leases.holds(1, 9)
    assert leases.held == {0: 5, 1: 9}
    given = []
    for _ in range(4):
        given.append(leases.claim(2, END))
        leases.done(2, given[-1])
    assert given == [3, 6, 8, 10]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 3) | st.none(), st.integers(0, 2**32 - 1), st.integers(0, 200))
def test_each_window_is_done_once_and_nobody_is_further_ahead_than_the_bound(staleness, drawn, steps):
    chance, leases = random.Random(drawn), Leases(staleness=staleness)
    done: Counter[int] = Counter()
    for _ in range(steps):
        worker = chance.randrange(4)
        if worker not in leases.clocks:
            leases.join(worker)
        elif chance.random() < 0.05:
            leases.leave(worker)
        elif worker in leases.held and chance.random() < 0.6:
            window = leases.held[worker]
            leases.done(worker, window)
            done[window] += 1
        else:
            again = bool(leases._again)
            before = leases.held.get(worker)
            window = leases.claim(worker, END)
            assert before is None or window == before
            assert window is None or done[window] == 0
            if window is not None and before is None and not again and staleness is not None:
                assert leases.ahead(worker) <= staleness
        held = list(leases.held.values())
        assert len(held) == len(set(held))
        assert leases.held.keys() <= leases.clocks.keys()
        # What was given out is held, waits to be given again, or is done.
        assert sorted([*held, *leases._again, *done]) == list(range(leases.next))
    assert all(count == 1 for count in done.values())


# -- one order ------------------------------------------------------------------------------------------------------


def test_windows_are_numbered_as_they_become_complete_on_all_shards():
    order = Order(2)
    told = Told(1.0, True)
    assert order.ready(0, 7, told) is None
    assert order.ready(1, 3, told) is None
    assert order.ready(0, 3, told) == Decision(3, 2.0**0.5, True, 0)
    assert order.ready(1, 7, told) == Decision(7, 2.0**0.5, True, 1)
    assert order.ready(0, 3, told) == Decision(3, 2.0**0.5, True, 0)


def test_a_number_that_a_shard_knows_stays_that_of_its_window():
    order = Order(2)
    told = Told(1.0, True)
    assert order.ready(1, 4, told, number=-1) is None
    assert order.ready(0, 9, told, number=6) is None
    made = order.ready(0, 4, told, number=7)
    assert made is not None
    assert made.number == 7
    order.ready(0, 5, told)
    fresh = order.ready(1, 5, told)
    assert fresh is not None
    assert fresh.number == 8


def test_what_all_have_on_disk_is_forgotten():
    order = Order(2)
    for window in (2, 0, 1):
        for shard in range(2):
            order.ready(shard, window, Told(1.0, True))
    order.durable(0, 2)
    assert len(order) == 3
    order.durable(1, 3)
    assert len(order) == 1
    again = order.ready(0, 1, Told(1.0, True))
    assert again is not None
    assert again.number == 2


class Free:
    """One shard that applies windows as they are numbered, its snapshot, and its connection to the coordinator."""

    def __init__(self, number: int, world: FreeWorld) -> None:
        self.number, self.world = number, world
        self.disk: tuple[list[int], int, set[int], dict[int, Told], dict[int, int]] = ([], 0, set(), {}, {})
        self.up: deque[tuple[int, Told, int, int]] = deque()
        self.down: deque[Decision] = deque()
        self.crash()

    def crash(self) -> None:
        """Back to the snapshot; the connection is another one."""
        history, floor, applied, told, numbers = self.disk
        #: The windows in the order in which they were applied.
        self.history = list(history)
        self.durable = len(history)
        self.windows = Windows(1, 99, next=self.durable, floor=floor, applied=set(applied))
        self.told, self.numbers = dict(told), dict(numbers)
        self.cut()

    def cut(self) -> None:
        """What was under way is lost; the coordinator is told again, first what was applied, in the order of that."""
        self.up.clear()
        self.down.clear()
        self.windows.renumber()
        known = sorted((self.numbers[window], window) for window in self.told if window in self.numbers)
        for window in [*(each for _, each in known), *sorted(self.told.keys() - self.numbers.keys())]:
            self.tell(window)

    def tell(self, window: int) -> None:
        self.up.append((window, self.told[window], self.numbers.get(window, -1), self.durable))

    def comes(self, window: int) -> None:
        """A worker pushes a window, perhaps again."""
        self.windows.push(window, 0)
        self.windows.end(window, False)
        if self.windows.complete(window):
            self.told.setdefault(window, Told(window + self.number / 8, True))
            self.tell(window)

    def hears(self, made: Decision) -> None:
        if self.windows.is_applied(made.round):
            return
        self.windows.number(made.round, made.number)
        while (window := self.windows.due()) is not None:
            self.numbers[window] = self.windows.next
            self.history.append(window)
            self.windows.commit(window)
        for other in self.world.shards:
            both = min(len(self.history), len(other.history))
            assert self.history[:both] == other.history[:both], "all shards have one order"

    def write(self) -> None:
        windows = self.windows
        self.disk = (
            list(self.history),
            windows.floor,
            set(windows.applied),
            dict(self.told),
            dict(self.numbers),
        )
        self.durable = windows.next


class FreeWorld:
    """Shards and a coordinator."""

    def __init__(self, shards: int) -> None:
        self.coordinator = Order(shards)
        self.shards = [Free(number, self) for number in range(shards)]

    def deliver(self, shard: Free, upwards: bool) -> None:
        if not upwards and shard.down:
            shard.hears(shard.down.popleft())
        elif upwards and shard.up:
            window, told, number, durable = shard.up.popleft()
            made = self.coordinator.ready(shard.number, window, told, number)
            self.coordinator.durable(shard.number, durable)
            for each in self.shards if made is not None else ():
                each.down.append(made)


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 3), st.integers(1, 6), st.integers(0, 400), st.integers(0, 2**32 - 1))
def test_all_shards_apply_all_windows_in_one_order_whatever_crashes(shards, number, steps, drawn):
    chance, world = random.Random(drawn), FreeWorld(shards)
    log = []
    for _ in range(steps):
        shard = chance.choice(world.shards)
        kind = chance.random()
        if kind < 0.35:
            shard.comes(chance.randrange(number))
        elif kind < 0.9:
            world.deliver(shard, chance.random() < 0.5)
        elif kind < 0.94:
            shard.write()
        elif kind < 0.96:
            shard.cut()
            log.append(f"cut {shard.number}")
        elif kind < 0.98:
            shard.crash()
            log.append(f"crash {shard.number} to {shard.windows.next}")
        else:
            world.coordinator = Order(shards)
            for each in world.shards:
                each.cut()
            log.append("crash of the coordinator")
    for _ in range(3):
        for shard in world.shards:
            for window in range(number):
                shard.comes(window)
        while any(shard.up or shard.down for shard in world.shards):
            for shard in world.shards:
                world.deliver(shard, True)
                world.deliver(shard, False)
    note("; ".join(log))
    for shard in world.shards:
        assert shard.windows.next == shard.windows.floor == number
        assert shard.windows.applied == set()
        assert sorted(shard.history) == list(range(number))
