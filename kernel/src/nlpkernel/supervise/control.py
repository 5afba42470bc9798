"""The control channel: all processes of a run stop after the same step, without a collective in any step.

The supervisor proposes a step ahead of all. A process that has not begun a later one promises to begin none until it
hears again, and says so; one that has answers late, and a later step is proposed. Once all have promised, the step is
named for good. So a process may wait between two steps, and never inside one, where others would wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

#: The first distance between the furthest step known and the one proposed; it doubles with each try.
MARGIN = 2
#: Seconds after which a proposal that somebody did not answer is made again.
PATIENCE = 1.0

Body = Mapping[str, Any]


class Control:
    """The worker's side: between two steps the loop asks whether it may begin the next."""

    def __init__(self, answer: Callable[[Body], None]) -> None:
        self._answer = answer
        self._begun = 0
        self._hold: int | None = None
        self._end: tuple[int, int] | None = None
        self._word = threading.Condition()

    def may_begin(self, step: int, waiting: Callable[[bool], None] = lambda _: None) -> int | None:
        """None: begin `step`. Otherwise the number of the signal for which the run ends before it. Waits where others
        have not answered yet, and tells `waiting` when that begins and ends."""
        # In this order, as `propose` writes and reads in the other: one of the two sees what the other wrote.
        self._begun = step
        if self._hold is None:
            return None
        return self._ask(step, waiting)

    def _ask(self, step: int, waiting: Callable[[bool], None]) -> int | None:
        told = False
        with self._word:
            while True:
                if self._end is not None and step > self._end[0]:
                    return self._end[1]
                if self._hold is None or step <= self._hold:
                    self._begun = step
                    break
                self._begun = step - 1
                if not told:
                    waiting(True)
                    told = True
                # With a timeout, so that a signal is handled where waiting cannot be interrupted.
                self._word.wait(1.0)
        if told:
            waiting(False)
        return None

    def propose(self, number: int, step: int) -> None:
        """Promise to begin no step after `step`, or say that it is late for that."""
        with self._word:
            self._hold = step
            begun = self._begun
            self._answer({"round": number, "step": begun, "late": begun > step})
            self._word.notify_all()

    def end(self, step: int, signal: int) -> None:
        """The run ends after `step`, for good; a step that is past means now."""
        with self._word:
            self._hold, self._end = step, (step, signal)
            self._word.notify_all()


@attrs.define
class Stopping:
    """The supervisor's side: from the wish to stop to the step that is named for good.

    `members` have to agree; `send` gives one of them a message. `step` is the last one proposed, and `settled` says
    that it stands.
    """

    signal: int
    members: set[str]
    send: Callable[[str, str, Body], None]
    now: float
    step: int = 0
    settled: bool = False
    _round: int = 0
    _margin: int = MARGIN
    _answered: set[str] = attrs.field(factory=set)
    _asked_at: float = 0.0

    def begin(self, steps: Iterable[int]) -> None:
        """Make the first proposal, ahead of the steps that are known. A process alone ends after its own step."""
        if len(self.members) < 2:
            self._settle(0)
        else:
            self._propose(max(steps, default=0))

    def begin_at_once(self) -> None:
        """Each ends after its own step."""
        self._settle(0)

    def answer(self, name: str, body: Body, now: float) -> None:
        """A process answered."""
        self.now = now
        if self.settled or body.get("round") != self._round:
            return
        if body["late"]:
            self._margin *= 2
            self._propose(int(body["step"]))
            return
        self._answered.add(name)
        self._settle_if_all()

    def gone(self, name: str) -> None:
        """A process ended by itself: it has nothing to answer any more."""
        self.members.discard(name)
        if not self.settled:
            self._settle_if_all()

    def tick(self, now: float) -> None:
        """Ask again where an answer is overdue."""
        self.now = now
        if not self.settled and now - self._asked_at > PATIENCE:
            self._propose(self.step - self._margin)

    def _propose(self, beyond: int) -> None:
        self.step = max(self.step, beyond + self._margin)
        self._round += 1
        self._answered.clear()
        self._asked_at = self.now
        for name in sorted(self.members):
            self.send(name, "propose", {"round": self._round, "step": self.step})

    def _settle_if_all(self) -> None:
        if self.members <= self._answered:
            self._settle(self.step)

    def _settle(self, step: int) -> None:
        self.settled, self.step = True, step
        for name in sorted(self.members):
            self.send(name, "stop", {"step": step, "signal": self.signal})
