"""Heartbeats that carry step and phase, and the watch that tells a process that is dead, silent or stuck apart.

A thread that beats says only that the process is there. Whether the run goes on is told by the pulse, which the engine
moves from the loop itself: beats that arrive while the pulse stands still are those of a stuck process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

#: Seconds between two beats.
INTERVAL = 1.0
#: How many times longer than a step the other phases may stand still, and seconds that they may in any case.
LONGER, LEAST = 6.0, 60.0
#: Beats that may be missing before a process is silent.
_MISSED = 10
#: Seconds between two looks that count at most.
_AWAY = 1.0


class Pulse:
    """Where the loop is. The engine writes it with plain assignments; the thread that beats reads it.

    phase: "opening", "step", "evaluate", "save", "load", "waiting" or "closing"; "serving" in one that is no worker.
    step: the step that is run, or was last. moves: grows with everything that gets on.
    """

    __slots__ = ("moves", "phase", "step")

    def __init__(self) -> None:
        self.phase, self.step, self.moves = "opening", 0, 0

    def enter(self, phase: str) -> None:
        """Another phase begins."""
        self.phase = phase
        self.moves += 1

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """A phase within another."""
        before = self.phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)


class Beats:
    """A thread that tells a pulse at regular intervals."""

    def __init__(
        self, pulse: Pulse, tell: Callable[[dict[str, object]], None], interval: float = INTERVAL
    ) -> None:
        self._pulse, self._tell, self._interval = pulse, tell, interval
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nlpkernel-beats", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Tell it now."""
        pulse = self._pulse
        self._tell({"phase": pulse.phase, "step": pulse.step, "moves": pulse.moves})

    def close(self) -> None:
        """Tell it once more, and end."""
        self._end.set()
        self._thread.join(self._interval)
        self.beat()

    def _run(self) -> None:
        self.beat()
        while not self._end.wait(self._interval):
            self.beat()


@attrs.frozen(kw_only=True)
class Limits:
    """How long a process may seem not to get on, in seconds. None: for ever.

    stall: in a step. silence: without a beat. Other phases may take `LONGER` than a step, and `LEAST` in any case.
    """

    stall: float | None = 600.0
    silence: float | None = 60.0
    least: float = LEAST

    @classmethod
    def of(cls, stall: float | None, interval: float = INTERVAL) -> Limits:
        """The limits that follow from a plan's `stall`: a process may be silent for a tenth of it, and some beats."""
        silence = None if stall is None else max(_MISSED * interval, stall / 10)
        return cls(stall=stall, silence=silence)

    def still(self, phase: str) -> float | None:
        """How long the pulse may stand still in a phase. A server has nothing to do while the workers do not ask."""
        if phase == "serving":
            return None
        if self.stall is None or phase == "step":
            return self.stall
        return max(LONGER * self.stall, self.least)


class Watch:
    """One process, seen through its beats. All times are monotonic seconds of the watcher."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits = limits
        #: "starting" until the first beat.
        self.phase, self.step = "starting", 0
        self._moves = -1
        self._beaten = self._moved = self._looked = now
        self._beats = self._leaving = False

    def beat(self, phase: str, step: int, moves: int, now: float) -> None:
        """A beat arrived."""
        self._beaten, self._beats = now, True
        if (phase, moves) != (self.phase, self._moves):
            self._moved = now
        self.phase, self.step, self._moves = phase, step, moves

    def leave(self, now: float) -> None:
        """It said that it ends, and beats no more; what is left to do is its own clearing up."""
        self._moved, self._beats, self._leaving = now, False, True

    def began(self, step: int) -> None:
        """Its first step comes, after those that were done before."""
        self.phase, self.step = "step", step + 1

    def reached(self, step: int) -> None:
        """An event tells that a step is done; beats come more rarely."""
        self.step = max(self.step, step)

    def look(self, now: float) -> str | None:
        """What is wrong, as "silent" or "stuck"; None where nothing is.

        Where the watcher itself did not look for long (it was stopped), that time does not count.
        """
        away = max(0.0, now - self._looked - _AWAY)
        self._looked = now
        self._beaten += away
        self._moved += away
        silence = self.limits.silence
        if silence is not None and self._beats and now - self._beaten > silence:
            return "silent"
        still = self.limits.still("closing" if self._leaving else self.phase)
        if still is not None and now - self._moved > still:
            return "stuck"
        return None

    def still(self, now: float) -> float:
        """Seconds since it last got on."""
        return now - self._moved

    def silent(self, now: float) -> float:
        """Seconds since the last beat."""
        return now - self._beaten

    @property
    def where(self) -> str:
        """Where it was last, as a clause."""
        step = self.step
        return {
            "starting": "while starting",
            "opening": "while opening the run",
            "step": f"in step {step}",
            "evaluate": f"in an evaluation after step {step}",
            "save": f"in a save after step {step}",
            "load": f"while taking up a version after step {step}",
            "waiting": f"waiting for the others after step {step}",
            "serving": f"while serving step {step}" if step else "while serving",
            "closing": f"while closing the run after step {step}",
        }.get(self.phase, f"in {self.phase} after step {step}")
