"""Who is waited for under a bound on staleness: named now and then, and only where it takes time."""

from __future__ import annotations

import pytest

from nlpkernel_zmq.machines.pace import FIRST, MOST, Pace, Slowest


def test_the_one_that_was_waited_for_longest_is_named_with_the_share_of_the_others_time() -> None:
    pace = Pace()
    # Two of three others wait for worker 2 in half of the time, and one of them for worker 0 in a tenth.
    said = [
        pace.turn(0.0, 2, {2}, 3),
        pace.turn(15.0, 1, {0}, 3),
        pace.turn(18.0, 0, {1}, 3),
        pace.turn(29.0, 0, {1}, 3),
    ]
    assert said == [None] * 4
    assert pace.turn(30.0, 0, {1}, 3) == Slowest(2, pytest.approx(30 / 90), 30.0)
    assert pace.turn(31.0, 0, {1}, 3) is None


def test_workers_that_hardly_wait_are_not_worth_a_word() -> None:
    pace = Pace()
    for second in range(400):
        assert pace.turn(second, 0, {0}, 2) is None
        assert pace.turn(second + 0.9, 1, {0}, 2) is None
    assert pace.every == FIRST


def test_a_run_of_days_is_not_full_of_it_and_a_new_straggler_is_found_soon_again() -> None:
    pace = Pace()
    said = [second for second in range(3 * 86_400) if pace.turn(second, 1, {1}, 1) is not None]
    assert said[:4] == [30, 90, 210, 450]
    assert len(said) < 90
    assert pace.every == MOST
    found = [pace.turn(3 * 86_400 + second, 0, {1}, 1) for second in range(86_400)]
    assert sum(each is not None for each in found) <= 1, "what is left of the last look"
    assert pace.every == FIRST
