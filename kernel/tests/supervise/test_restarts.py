"""Back-off and budget of restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.supervise.restarts import Restarts


def test_each_restart_waits_twice_as_long_up_to_a_minute():
    restarts = Restarts(10)
    assert [restarts.failed(3) for _ in range(10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert restarts.failed(3) is None


def test_progress_past_the_last_failure_begins_the_back_off_anew_and_the_budget_counts_all():
    restarts = Restarts(5)
    assert [restarts.failed(step) for step in (3, 3, 2, 4, 4, 9)] == [1, 2, 4, 1, 2, None]
    assert restarts.used == 5


def test_failures_in_the_same_step_are_counted():
    restarts = Restarts(9)
    seen = []
    for step in (5, 5, 5, 6, 5):
        restarts.failed(step)
        seen.append(restarts.repeated)
    assert seen == [1, 2, 3, 1, 1]


def test_no_budget_no_restart():
    assert Restarts(0).failed(1) is None


@given(st.integers(0, 20), st.lists(st.integers(0, 5), max_size=40))
def test_the_budget_is_never_exceeded_and_no_wait_is_longer_than_the_longest(budget, steps):
    restarts = Restarts(budget, first=1.0, longest=8.0)
    delays = [restarts.failed(step) for step in steps]
    given_ = [delay for delay in delays if delay is not None]
    assert len(given_) == min(budget, len(steps)) == restarts.used
    assert all(1.0 <= delay <= 8.0 for delay in given_)
