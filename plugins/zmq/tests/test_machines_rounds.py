"""The rounds of one shard: each piece once, each round once, in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_zmq.machines.rounds import Rounds, Verdict

TAKE, KNOWN, EARLY, WRONG = Verdict.TAKE, Verdict.KNOWN, Verdict.EARLY, Verdict.WRONG


def fill(rounds: Rounds, of: int = 2, empty: frozenset[int] = frozenset()) -> None:
    """All of the round at hand."""
    for share in range(of):
        for chunk in () if share in empty else range(rounds.chunks):
            assert rounds.push(rounds.next, share, of, chunk) is TAKE
        assert rounds.end(rounds.next, share, of, share in empty) is TAKE


def test_a_piece_counts_once():
    rounds = Rounds(2)
    assert rounds.push(0, 0, 1, 0) is TAKE
    assert rounds.push(0, 0, 1, 0) is KNOWN
    assert rounds.push(0, 0, 1, 1) is TAKE
    assert rounds.end(0, 0, 1, False) is TAKE
    assert rounds.end(0, 0, 1, False) is KNOWN
    assert rounds.push(0, 0, 1, 1) is KNOWN


def test_a_round_that_was_applied_is_known_for_ever():
    rounds = Rounds(1)
    fill(rounds)
    rounds.commit()
    for of in (1, 2, 7):
        assert rounds.push(0, of - 1, of, 0) is KNOWN
        assert rounds.end(0, of - 1, of, True) is KNOWN
    assert rounds.of == 0
    fill(rounds)
    assert rounds.complete
    assert rounds.next == 1


def test_a_later_round_is_early_and_leaves_nothing_behind():
    rounds = Rounds(1, next=4)
    assert rounds.push(5, 0, 1, 0) is EARLY
    assert rounds.end(5, 0, 1, False) is EARLY
    assert rounds.push(3, 0, 1, 0) is KNOWN
    assert rounds.of == 0
    assert not rounds.complete
    assert not rounds.full(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda rounds: rounds.push(0, 2, 2, 0),
        lambda rounds: rounds.push(0, -1, 2, 0),
        lambda rounds: rounds.push(0, 0, 0, 0),
        lambda rounds: rounds.push(0, 0, 3, 0),
        lambda rounds: rounds.push(0, 1, 2, 2),
        lambda rounds: rounds.push(0, 1, 2, -1),
        lambda rounds: rounds.end(0, 2, 2, False),
        lambda rounds: rounds.end(0, 1, 3, True),
        lambda rounds: rounds.end(0, 0, 2, True),
    ],
)
def test_what_contradicts_is_wrong_and_changes_nothing(call):
    rounds = Rounds(2)
    assert rounds.push(0, 0, 2, 0) is TAKE
    assert call(rounds) is WRONG
    assert rounds.push(0, 0, 2, 1) is TAKE
    assert rounds.end(0, 0, 2, False) is TAKE
    assert rounds.end(0, 1, 2, True) is TAKE
    assert rounds.complete
    assert list(rounds.present(0)) == [0]


def test_a_share_is_empty_or_not():
    rounds = Rounds(1)
    assert rounds.end(0, 0, 2, True) is TAKE
    assert rounds.end(0, 0, 2, True) is KNOWN
    assert rounds.end(0, 0, 2, False) is WRONG
    assert rounds.push(0, 0, 2, 0) is WRONG
    assert rounds.whole(0)
    assert not rounds.full(0)
    assert rounds.push(0, 1, 2, 0) is TAKE
    assert rounds.full(0)
    assert list(rounds.present(0)) == [1]
    assert not rounds.complete
    assert rounds.end(0, 1, 2, True) is WRONG
    assert rounds.end(0, 1, 2, False) is TAKE
    assert rounds.end(0, 1, 2, True) is WRONG
    assert rounds.complete


def test_the_end_may_overtake_pieces_of_another_connection():
    rounds = Rounds(3)
    assert rounds.push(0, 0, 1, 2) is TAKE
    assert rounds.end(0, 0, 1, False) is TAKE
    assert not rounds.complete
    assert rounds.push(0, 0, 1, 0) is TAKE
    assert rounds.push(0, 0, 1, 1) is TAKE
    assert rounds.complete


def test_an_end_whose_pieces_came_too_early_waits_for_them():
    rounds = Rounds(1)
    assert rounds.push(1, 0, 1, 0) is EARLY
    fill(rounds, of=1)
    rounds.commit()
    assert rounds.end(1, 0, 1, False) is TAKE
    assert not rounds.complete
    assert rounds.push(1, 0, 1, 0) is TAKE
    assert rounds.complete


def test_a_shard_without_numbers_has_rounds_too():
    rounds = Rounds(0)
    assert rounds.push(0, 0, 2, 0) is WRONG
    assert rounds.end(0, 0, 2, False) is TAKE
    assert not rounds.complete
    assert rounds.end(0, 1, 2, True) is TAKE
    assert rounds.complete


def test_a_round_is_not_applied_before_it_is_complete():
    with pytest.raises(AssertionError, match="once all of it is there"):
        Rounds(1).commit()


def test_what_was_forgotten_is_taken_again():
    rounds = Rounds(1, next=3)
    fill(rounds)
    rounds.restart()
    assert (rounds.next, rounds.of, rounds.complete) == (3, 0, False)
    fill(rounds, of=3)
    assert rounds.complete


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_order_and_the_repetitions_each_part_is_taken_once(data):
    """Against the list of all parts: what has been taken is what has come, and the round is complete with the last."""
    of, chunks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    empty = data.draw(st.frozensets(st.integers(0, of - 1)))
    number = data.draw(st.integers(1, 3))
    rounds = Rounds(chunks, next=7)
    for round in range(7, 7 + number):
        rows = [[*([] if share in empty else range(chunks)), "end"] for share in range(of)]
        left = {(share, part) for share, row in enumerate(rows) for part in row}
        came: set[tuple[int, object]] = set()
        # Each attempt of a worker keeps its order and may stop anywhere; the last one does not.
        attempts = [
            (share, row[:stop])
            for share, row in enumerate(rows)
            for stop in data.draw(st.lists(st.integers(0, len(row)), max_size=2))
        ]
        attempts += list(enumerate(rows))
        attempts = [(share, list(row)) for share, row in attempts if row]
        while attempts:
            share, row = attempts[data.draw(st.integers(0, len(attempts) - 1))]
            part = row.pop(0)
            attempts = [each for each in attempts if each[1]]
            if part == "end":
                verdict = rounds.end(round, share, of, share in empty)
            else:
                verdict = rounds.push(round, share, of, part)
            assert verdict is (KNOWN if (share, part) in came else TAKE)
            came.add((share, part))
            assert rounds.complete == (came == left)
            for chunk in range(chunks):
                there = [each for each in range(of) if (each, chunk) in came]
                ended = {each for each in empty if (each, "end") in came}
                assert list(rounds.present(chunk)) == there
                assert rounds.full(chunk) == (len(there) + len(ended) == of)
            for each in range(of):
                assert rounds.whole(each) == all((each, one) in came for one in rows[each])
        rounds.commit()
    assert rounds.next == 7 + number
