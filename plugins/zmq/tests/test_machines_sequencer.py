"""One order, one decision for each round."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_zmq.machines.sequencer import Decision, Sequencer, Told


def test_nothing_is_decided_before_all_shards_have_all_of_it():
    sequencer = Sequencer(3)
    assert sequencer.ready(0, 0, Told(1.0, True)) is None
    assert sequencer.ready(2, 0, Told(2.0, True)) is None
    assert sequencer.ready(2, 0, Told(2.0, True)) is None
    assert sequencer.ready(1, 1, Told(5.0, True)) is None
    assert sequencer.ready(1, 0, Told(6.0, True)) == Decision(0, 3.0, True)


def test_a_decision_is_said_again_to_whoever_asks_again():
    sequencer = Sequencer(2)
    sequencer.ready(0, 4, Told(9.0, True))
    made = sequencer.ready(1, 4, Told(16.0, True))
    assert made == Decision(4, 5.0, True)
    assert sequencer.ready(0, 4, Told(9.0, True)) is made
    assert sequencer.ready(1, 4, Told(16.0, True)) is made


@pytest.mark.parametrize(
    "told",
    [
        Told(math.inf, False),
        Told(math.nan, False),
        Told(1.0, False),
        Told(math.inf, True),
        Told(math.nan, True),
    ],
)
def test_one_shard_that_is_not_finite_is_enough_to_leave_the_round_out(told):
    sequencer = Sequencer(2)
    sequencer.ready(0, 0, Told(1.0, True))
    made = sequencer.ready(1, 0, told)
    assert made is not None
    assert not made.finite
    assert sequencer.ready(1, 0, told) is made


def test_squares_that_overflow_together_are_not_finite():
    sequencer = Sequencer(2)
    sequencer.ready(0, 0, Told(1.7e308, True))
    made = sequencer.ready(1, 0, Told(1.7e308, True))
    assert made == Decision(0, math.inf, False)


def test_what_a_shard_says_last_counts_until_there_is_a_decision():
    sequencer = Sequencer(2)
    sequencer.ready(0, 3, Told(1.0, True))
    sequencer.ready(0, 3, Told(2.0, True))
    decided = sequencer.ready(1, 3, Told(2.0, True))
    assert decided == Decision(3, 2.0, True)
    assert sequencer.ready(0, 3, Told(9.0, False)) == decided
    for shard in (-1, 2):
        with pytest.raises(ValueError, match="there is no shard"):
            sequencer.ready(shard, 3, Told(1.0, True))


def test_a_decision_goes_once_all_are_beyond_it():
    sequencer = Sequencer(2)
    for round in range(4):
        for shard in range(2):
            sequencer.ready(shard, round, Told(1.0, True))
    assert sequencer.durable(0, 3) == 0
    assert len(sequencer) == 4
    assert sequencer.durable(1, 2) == 2
    assert len(sequencer) == 2
    assert sequencer.ready(1, 2, Told(1.0, True)) is not None
    assert sequencer.durable(1, 1) == 2
    assert sequencer.durable(1, 9) == 3
    assert len(sequencer) == 1


def test_what_is_said_again_of_a_round_that_is_over_for_all_is_not_kept():
    sequencer = Sequencer(2)
    for shard in range(2):
        sequencer.ready(shard, 0, Told(1.0, True))
        sequencer.durable(shard, 1)
    assert len(sequencer) == 0
    assert sequencer.ready(0, 0, Told(1.0, True)) is None
    sequencer.durable(0, 1)
    assert len(sequencer) == 0


SQUARES = st.floats(0, 1e300) | st.sampled_from([0.0, math.inf, math.nan, 0.1, 1e-320])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_decision_depends_on_what_was_said_and_not_on_its_order(data):
    """Also of a coordinator that forgot all and is told again, at any moment."""
    shards, rounds = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    said = {
        (shard, round): Told(data.draw(SQUARES), data.draw(st.booleans()))
        for shard in range(shards)
        for round in range(rounds)
    }
    expected: dict[int, str] = {}
    sequencer = Sequencer(shards)
    for _ in range(2):
        order = data.draw(
            st.permutations([*said, *data.draw(st.lists(st.sampled_from(list(said)), max_size=4))])
        )
        told: set[tuple[int, int]] = set()
        for shard, round in order:
            told.add((shard, round))
            made = sequencer.ready(shard, round, said[shard, round])
            assert (made is not None) == ({(each, round) for each in range(shards)} <= told)
            if made is not None:
                assert made.round == round
                assert made.finite <= all(said[each, round].finite for each in range(shards))
                assert made.finite == (made.finite and math.isfinite(made.norm))
                # As text: not-a-number is not equal to itself.
                assert repr(made) == expected.setdefault(round, repr(made))
        sequencer = Sequencer(shards)
