"""Meetings: all say something, and all get what all said."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_zmq.machines.meetings import Meetings


def test_the_last_one_ends_it():
    meetings = Meetings()
    assert meetings.say("a", 2, b"two", [0, 2]) is None
    assert meetings.missing(2, lambda key: [0, 2]) == [0]
    assert meetings.missing(0, lambda key: [0, 2]) == [], "it waits for nobody"
    assert meetings.say("a", 2, b"two", [0, 2]) is None
    assert meetings.say("a", 0, b"", [0, 2]) == {0: b"", 2: b"two"}
    assert (len(meetings), meetings.missing(2, lambda key: [0, 2])) == (0, [])


def test_each_of_several_meetings_has_members_of_its_own():
    meetings = Meetings()
    members = {"a": [0, 1, 2], "b": [0, 2, 4]}
    for key in members:
        meetings.say(key, 0, b"", members[key])
    meetings.say("a", 2, b"", members["a"])
    assert meetings.missing(0, members.__getitem__) == [1, 2, 4]
    assert meetings.missing(2, members.__getitem__) == [1]


def test_who_asks_again_gets_the_same_answer():
    meetings = Meetings()
    meetings.say("a", 0, b"x", [0, 1])
    found = meetings.say("a", 1, b"y", [0, 1])
    for again in (b"y", b"other"):
        assert meetings.say("a", 1, again, [0, 1]) == found == {0: b"x", 1: b"y"}
    assert len(meetings) == 0


def test_the_words_come_in_the_order_of_the_workers():
    meetings = Meetings()
    for worker in (3, 1, 2):
        found = meetings.say("a", worker, bytes([worker]), {1, 2, 3})
    assert list(found) == [1, 2, 3]


def test_a_member_that_is_gone_is_not_waited_for():
    meetings = Meetings()
    meetings.say("a", 0, b"x", [0, 1, 2])
    meetings.say("b", 1, b"y", [0, 1, 2])
    assert meetings.changed([0, 1]) == {}
    assert meetings.changed([0]) == {"a": {0: b"x"}}
    assert meetings.changed([1]) == {"b": {1: b"y"}}
    assert meetings.changed([1]) == {}


def test_a_member_that_is_gone_has_no_word():
    meetings = Meetings()
    meetings.say("a", 0, b"x", [0, 1])
    assert meetings.changed([1]) == {}
    assert meetings.say("a", 1, b"y", [1]) == {1: b"y"}


def test_nobody_meets_nobody():
    meetings = Meetings()
    meetings.say("a", 0, b"x", [0, 1])
    assert meetings.changed([]) == {}
    assert (len(meetings), meetings.missing(0, lambda key: [])) == (1, [])


def test_old_answers_go_when_there_are_too_many():
    meetings = Meetings(keep=3)
    for number in range(10):
        assert meetings.say(str(number), 0, b"", [0]) == {0: b""}
    assert [meetings.say(str(number), 1, b"late", [0, 1]) for number in (7, 8, 9)] == [{0: b""}] * 3
    assert meetings.say("6", 1, b"late", [0, 1]) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=80))
def test_everybody_gets_what_everybody_said_whatever_the_order(workers, order):
    number = 5
    meetings = Meetings(keep=2)
    at = dict.fromkeys(range(workers), 0)
    met: dict[int, dict[int, bytes]] = {}
    for drawn in [*order, *list(range(workers)) * 2 * number]:
        worker = drawn % workers
        key = at[worker]
        if key == number:
            continue
        found = meetings.say(str(key), worker, b"%d-%d" % (worker, key), range(workers))
        if found is not None:
            assert found == {each: b"%d-%d" % (each, key) for each in range(workers)}
            assert met.setdefault(key, dict(found)) == found
            at[worker] += 1
        assert len(meetings) <= 1
        assert max(at.values()) - min(at.values()) <= 1
    assert set(at.values()) == {number}
