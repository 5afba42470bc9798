"""What tells a process that is dead, silent or stuck apart; time is what the test says it is."""

from __future__ import annotations

import timeit

import pytest

from nlpkernel.supervise.heartbeat import Beats, Limits, Pulse, Watch

LIMITS = Limits(stall=10.0, silence=5.0, least=30.0)


def watched(limits: Limits = LIMITS) -> Watch:
    watch = Watch(limits, 0.0)
    watch.beat("step", 1, 1, 0.0)
    return watch


def lived(
    watch: Watch, seconds: int, *, start: int = 0, beats: bool = True, moves: bool = True, phase="step"
):
    """Look at a process each second; what was seen first, and when."""
    for now in range(start + 1, start + seconds + 1):
        if beats:
            watch.beat(phase, 1, now if moves else 1, float(now))
        seen = watch.look(float(now))
        if seen is not None:
            return seen, now
    return None


def test_a_loop_that_moves_is_well():
    assert lived(watched(), 1000) is None


def test_a_thread_that_beats_while_the_loop_is_stuck_is_seen_as_stuck():
    assert lived(watched(), 100, moves=False) == ("stuck", 11)


def test_a_process_without_beats_is_silent_long_before_it_is_stuck():
    assert lived(watched(), 100, beats=False) == ("silent", 6)


@pytest.mark.parametrize("phase", ["evaluate", "save", "opening", "waiting", "closing"])
def test_outside_the_steps_it_may_stand_still_longer(phase):
    watch = watched()
    watch.beat(phase, 1, 1, 0.0)
    assert lived(watch, 200, moves=False, phase=phase) == ("stuck", 61)


def test_outside_the_steps_it_may_stand_still_for_a_minute_in_any_case():
    limits = Limits.of(1.0)
    assert (limits.still("step"), limits.still("save"), limits.still("starting")) == (1.0, 60.0, 60.0)


def test_another_phase_is_a_move():
    watch = watched()
    assert lived(watch, 9, moves=False) is None
    watch.beat("save", 1, 1, 9.5)
    assert lived(watch, 50, start=9, moves=False, phase="save") is None


def test_a_process_that_starts_has_no_beats_yet_and_is_not_silent():
    watch = Watch(LIMITS, 0.0)
    assert lived(watch, 100, beats=False) == ("stuck", 61)
    assert watch.where == "while starting"


def test_a_process_that_said_that_it_ends_beats_no_more_and_has_a_while_to_do_so():
    watch = watched()
    watch.beat("step", 7, 7, 0.0)
    watch.leave(0.0)
    assert lived(watch, 100, beats=False) == ("stuck", 61)
    assert watch.where == "in step 7", "which is where it came to its end"


def test_never_is_never():
    assert lived(watched(Limits.of(None)), 10_000, moves=False) is None
    assert lived(watched(Limits.of(None)), 10_000, beats=False) is None


def test_a_watcher_that_was_away_says_nothing_of_what_it_missed():
    watch = watched()
    assert watch.look(500.0) is None, "it was stopped itself, and the beats of that time wait to be read"
    assert lived(watch, 100, start=500, beats=False) == ("silent", 505)


def test_the_silence_that_follows_from_a_stall():
    assert Limits.of(600.0) == Limits(stall=600.0, silence=60.0)
    assert Limits.of(2.0) == Limits(stall=2.0, silence=10.0)
    assert Limits.of(None) == Limits(stall=None, silence=None)


def test_a_step_of_the_pulse_costs_well_under_a_microsecond():
    pulse = Pulse()
    cost = (
        min(timeit.repeat("p.step = 7; p.moves += 1", globals={"p": pulse}, number=100_000, repeat=5)) / 1e5
    )
    assert cost < 0.5e-6


def test_a_phase_within_a_phase_ends_with_it_whatever_happens():
    pulse = Pulse()
    pulse.enter("step")
    inside = []

    def fails() -> None:
        with pulse.during("save"):
            inside.append(pulse.phase)
            raise OSError

    with pytest.raises(OSError):
        fails()
    assert inside == ["save"]
    assert (pulse.phase, pulse.moves) == ("step", 3)


def test_the_thread_tells_the_pulse_first_last_and_in_between(wait_for):
    told: list[dict[str, object]] = []
    pulse = Pulse()
    beats = Beats(pulse, told.append, 0.01)
    wait_for(lambda: len(told) > 3, "a few beats")
    pulse.step = 9
    beats.close()
    assert told[0] == {"phase": "opening", "step": 0, "moves": 0}
    assert told[-1]["step"] == 9
