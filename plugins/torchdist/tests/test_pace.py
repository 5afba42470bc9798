"""Who keeps the others waiting is found from when each arrives, not from how long steps take."""

from __future__ import annotations

from nlpkernel_torchdist import pace
from nlpkernel_torchdist.pace import Pace


def test_own_time_is_from_the_end_of_an_update_to_the_last_forward(monkeypatch):
    now = 10.0
    monkeypatch.setattr(pace, "perf_counter", lambda: now)
    own = Pace()

    def model(**inputs):
        nonlocal now
        now += inputs["seconds"]

    forward = own.timed(model)
    for seconds in (1.0, 3.0):
        now += 0.5  # Data.
        forward(seconds=seconds)
        now += 100.0  # Waiting for the others, in the backward pass.
        own.leave()
    assert own.take() == (1.5 + 3.5) / 2
    assert own.take() == 0.0
    now += 1000.0  # An evaluation.
    own.rest()
    forward(seconds=2.0)
    own.leave()
    assert own.take() == 2.0


def test_the_slowest_is_named_once():
    own = Pace()
    slow = own.judge([0.010, 0.212, 0.012, 0.011])
    assert slow is not None
    assert "worker 1 keeps the others waiting" in slow
    assert "212 ms" in slow
    assert "11 ms" in slow
    assert own.judge([0.010, 0.212, 0.012, 0.011]) is None
    assert own.judge([0.010, 0.010, 0.012, 0.011]) is None
    assert own.judge([0.3, 0.010, 0.012, 0.011]) is not None


def test_small_differences_are_nobodys_fault():
    assert Pace().judge([0.001, 0.009]) is None
    assert Pace().judge([0.200, 0.250]) is None
    assert Pace().judge([0.0, 0.0]) is None
