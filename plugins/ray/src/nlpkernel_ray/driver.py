"""The driver of a run on a cluster: seats for the workers, starts, restarts, the end. Light."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from types import FrameType

import attrs

from nlpkernel.errors import UsageError, fail
from nlpkernel.supervise.member import ASKED
from nlpkernel.supervise.restarts import FIRST, LONGEST
from nlpkernel_ray.attempt import Attempt, Outcome, lost
from nlpkernel_ray.cluster import Cluster, Needs, Seat
from nlpkernel_ray.codes import OWNER
from nlpkernel_ray.work import Work

#: Seconds in which more seats may still become free before fewer are taken.
_SETTLE = 10.0
#: Seconds until fewer seats, for which there is room, are there.
_FEWER = 5.0
#: Seconds until what was ended is gone.
_END = 4.0
#: A start that lasted so long says nothing about the next one: its restart comes soon again.
_LONG = 300.0


@contextmanager
def collected() -> Iterator[list[int]]:
    """While entered, signals that ask for the end are kept in a list instead of acted on."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, receive) for number in ASKED}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@attrs.define(kw_only=True)
class Driver:
    """Runs `work` to its end. numbers: of workers that are allowed, the best first. restarts: how often they are
    started again. patience: seconds to wait for seats. tell and echo: see `Attempt`."""

    cluster: Cluster
    work: Work
    numbers: Sequence[int]
    needs: Needs
    restarts: int
    patience: float
    signals: Sequence[int]
    tell: Callable[[str], None]
    echo: Callable[[int, str, str], None]
    settle: float = _SETTLE
    first: float = FIRST
    _doublings: int = attrs.field(default=0, init=False)

    def run(self) -> int:
        """The exit code of the run. Raise TrainingError (RAY009) where it was lost, UsageError (RAY005 to RAY008) where
        the cluster cannot run it."""
        used = 0
        while True:
            begin = time.monotonic()
            outcome = self._once(used)
            if outcome.kind == "refused":
                self.tell(f"{outcome.message}: the plan, a plugin or the command line is wrong")
            if outcome.kind != "lost":
                return outcome.code
            if used >= self.restarts:
                hint = "--restarts N starts the workers again" if not used else f"after {used} restarts"
                raise lost(outcome, hint)
            used += 1
            if time.monotonic() - begin > _LONG:
                self._doublings = 0
            delay = min(self.first * 2.0**self._doublings, LONGEST)
            self._doublings += 1
            self.tell(f"{outcome.message}; restart {used} of {self.restarts} in {delay:g} s")
            if not self._pause(delay):
                return 128 + self.signals[0]

    def _once(self, number: int) -> Outcome:
        try:
            seats = self._seats()
            if seats is None:
                return Outcome(kind="interrupted", code=128 + self.signals[0])
            attempt = Attempt(
                work=self.work, number=number, signals=self.signals, tell=self.tell, echo=self.echo
            )
            try:
                return attempt.run(seats)
            finally:
                wait([seat.ask("end") for seat in seats], timeout=_END)
        finally:
            self.cluster.release()

    def _seats(self) -> Sequence[Seat] | None:
        """Seats for the best number of workers that is to be had; None where a signal came meanwhile. Raise UsageError
        (RAY005) where there are none in time."""
        begin = time.monotonic()
        best, *fewer = self.numbers
        within = self.settle if fewer else self.patience
        while not self._hurried():
            seats = self.cluster.seats(best, self.needs, within, self._hurried)
            if seats is not None:
                return seats
            room = self.cluster.room(self.needs)
            for number in fewer:
                if number <= room and not self._hurried():
                    seats = self.cluster.seats(number, self.needs, _FEWER, self._hurried)
                    if seats is not None:
                        self.tell(f"there is no room for {best} workers: {number} go on")
                        return seats
            if time.monotonic() - begin >= self.patience and not self._hurried():
                least = self.numbers[-1]
                raise fail(
                    UsageError,
                    "RAY005",
                    f"{self.cluster.name} had no room for {least} workers of {self.needs} each within "
                    f"{self.patience:g} s; there is room for {room}",
                    owner=OWNER,
                    hint="take fewer (--workers), or less for each (--cpus, --gpus), or wait longer (--wait)",
                )
        return None

    def _hurried(self) -> bool:
        return bool(self.signals)

    def _pause(self, seconds: float) -> bool:
        """Wait; whether nobody asked for the end meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.signals:
            time.sleep(min(0.1, seconds))
        return not self.signals
