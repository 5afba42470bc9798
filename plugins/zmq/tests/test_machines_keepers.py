"""Who can send again what led to an update: a shard that asks for what is gone is found, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_zmq.machines.keepers import Keepers, Lost, Made, Process

OLD, NEW, OTHER = (1, 10), (1, 11), (2, 20)


def asked(keepers: Keepers, times: int, *living: Process, number: int = 4) -> list[Lost]:
    """What a shard is found to ask for in vain that is seen so often before an update."""
    found: list[Lost] = []
    for _ in range(times):
        found = keepers.looks(1, number, lambda process: process in living)
    return found


@pytest.fixture
def keepers() -> Keepers:
    """Update 4 is that of round 9, which worker 1 pushed."""
    made = Keepers(patience=3, longer=6)
    made.hello(1)
    made.made(4, Made(9, {0: [OLD]}, (OTHER,)))
    return made


def test_what_a_worker_kept_that_is_gone_is_lost_after_a_while(keepers):
    assert asked(keepers, 3, NEW) == [Lost(9, 0, -1)]
    assert asked(keepers, 3, NEW, OTHER) == [Lost(9, 0, 2)], "it may have done it instead"


def test_it_is_not_lost_at_once_nor_while_its_worker_lives(keepers):
    assert asked(keepers, 2, NEW) == []
    assert asked(keepers, 50, OLD) == []


def test_a_shard_that_has_it_all_since_it_came_back_waits_for_nobody(keepers):
    keepers.ready(1, 9)
    assert asked(keepers, 50) == []
    keepers.hello(1)
    assert asked(keepers, 3) == [Lost(9, 0)], "it came back once more"


def test_a_shard_that_gets_on_is_not_stuck(keepers):
    keepers.made(5, Made(8, {0: [OLD]}))
    for _ in range(10):
        assert asked(keepers, 2, number=4) == []
        assert asked(keepers, 2, number=5) == []


def test_what_is_not_decided_or_on_all_disks_is_nobody_s_loss(keepers):
    assert asked(keepers, 50, number=5) == []
    keepers.forget(5)
    assert (asked(keepers, 50), len(keepers)) == ([], 0)


def test_one_of_several_that_pushed_it_is_enough(keepers):
    keepers.made(6, Made(11, {0: [OLD, OTHER]}))
    assert asked(keepers, 50, OTHER, number=6) == []
    assert asked(keepers, 3, number=6) == [Lost(11, 0)]


def test_where_nobody_knows_who_pushed_it_there_is_more_time(keepers):
    keepers.made(7, Made(12, {0: None}))
    assert asked(keepers, 5, number=7) == []
    assert asked(keepers, 1, number=7) == [Lost(12, 0)]
    for _ in range(50):
        assert keepers.looks(1, 7, lambda process: False, lambda round: True) == []
    keepers.made(7, Made(12, {0: [OTHER]}))
    assert asked(keepers, 50, OTHER, number=7) == [], "now it is known"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("hrlmf"), st.integers(0, 5)), max_size=60))
def test_whatever_happens_nothing_is_lost_whose_worker_lives_and_little_is_remembered(happens):
    keepers, number = Keepers(patience=1, longer=1), 0
    for kind, drawn in happens:
        if kind == "m":
            keepers.made(number, Made(number, {0: [OTHER]}))
            number += 1
        elif kind == "f":
            keepers.forget(drawn)
        elif kind == "h":
            keepers.hello(drawn % 2)
        elif kind == "r":
            keepers.ready(drawn % 2, drawn)
        for shard in range(2):
            assert keepers.looks(shard, drawn, lambda process: process == OTHER) == []
    keepers.forget(number)
    assert len(keepers) == 0
