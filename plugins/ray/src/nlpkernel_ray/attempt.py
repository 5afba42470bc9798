"""One start of the workers: prepared, started, read and watched to its end. Light."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Literal

import attrs

from nlpkernel.errors import NlpkernelError, TrainingError, UsageError, fail
from nlpkernel.supervise.member import ASKED
from nlpkernel.supervise.process import name_of
from nlpkernel_ray.cluster import Lost, Seat
from nlpkernel_ray.codes import OWNER
from nlpkernel_ray.crew import Crew, Worker
from nlpkernel_ray.work import Work

#: Seconds that the driver looks away from signals at most, and that a hand waits for lines.
_TICK, _READ = 0.2, 1.0
#: Seconds that the others get, once one has failed, to say so and end by themselves.
GRACE = 20.0
#: Seconds until a file that one machine wrote is seen by all.
_SHARED = 10.0

Kind = Literal["finished", "interrupted", "refused", "lost"]


@attrs.frozen(kw_only=True)
class Outcome:
    """How a start ended, with the exit code of the run. message: who failed, and how."""

    kind: Kind
    code: int
    message: str = ""


class Leave(Exception):
    """A signal came for which everybody leaves at once."""

    def __init__(self, number: int) -> None:
        super().__init__(name_of(number))
        self.number = number


@attrs.define(kw_only=True)
class Attempt:
    """A start. signals: those that came to the driver, in order. tell: a line to the user. echo: a line of a worker,
    with its number, and whether it is of standard output ("out") or of standard error."""

    work: Work
    number: int
    signals: Sequence[int]
    tell: Callable[[str], None]
    echo: Callable[[int, str, str], None]
    grace: float = GRACE
    shared: float = _SHARED
    _ends: dict[int, int | Lost] = attrs.field(factory=dict, init=False)
    _passed: bool = attrs.field(default=False, init=False)

    def run(self, seats: Sequence[Seat]) -> Outcome:
        """From empty seats to the end of all workers. Raise UsageError (RAY006, RAY007, RAY008) where the machines do
        not allow that."""
        try:
            crew = self._prepare(seats)
            self._start(crew)
        except Lost as lost:
            return Outcome(kind="lost", code=1, message=f"a machine was lost before the run began: {lost}")
        except Leave as leave:
            return Outcome(kind="interrupted", code=128 + leave.number)
        try:
            return self._watch(crew)
        except Leave as leave:
            return Outcome(kind="interrupted", code=128 + leave.number)

    # -- preparing --------------------------------------------------------------------------------------------------

    def _all(self, futures: Iterable[Future[Any]]) -> list[Any]:
        """What all answer; a signal leaves at once, since there is nothing to save yet."""
        futures = list(futures)
        while wait(futures, timeout=_TICK).not_done:
            if self.signals:
                raise Leave(self.signals[0])
        return [future.result() for future in futures]

    def _prepare(self, seats: Sequence[Seat]) -> Crew:
        facts = self._all(seat.ask("facts") for seat in seats)
        crew = Crew.of(seats, facts)
        for what in ("python", "nlpkernel"):
            found = {str(fact[what]): str(fact["host"]) for fact in facts}
            if len(found) > 1:
                listed = ", ".join(f"{value} on {host}" for value, host in sorted(found.items()))
                raise _wrong("RAY008", f"the machines have different releases of {what}: {listed}", _INSTALL)
        provided = self._all(worker.seat.ask("provide", self.work.files) for worker in crew.workers)
        for worker, problem in zip(crew.workers, provided, strict=True):
            if problem is not None:
                raise _wrong("RAY007", f"{worker}: {problem}", "copy it there, or give the plan another name")
        self._share(crew)
        return crew

    def _share(self, crew: Crew) -> None:
        """Raise UsageError (RAY006) unless all machines have one folder of runs."""
        first, *others = crew.workers
        folder, token = self.work.runs, secrets.token_hex(8)
        (problem,) = self._all([first.seat.ask("mark", folder, token)])
        if problem is not None:
            raise _wrong("RAY006", f"{first}: {problem}", _SHARE)
        try:
            saw = self._all(worker.seat.ask("sees", folder, token, self.shared) for worker in others)
        finally:
            first.seat.ask("unmark", folder, token)
        blind = [str(worker) for worker, sees in zip(others, saw, strict=True) if not sees]
        if blind:
            message = f"the folder {folder} of {first} is not that of {', '.join(blind)}"
            raise _wrong("RAY006", message, _SHARE)

    def _start(self, crew: Crew) -> None:
        (port,) = self._all([crew.workers[0].seat.ask("port", crew.address)])
        environment = crew.environment(port, f"{self.work.name}-{secrets.token_hex(4)}", self.number)
        hosts = len({worker.host for worker in crew.workers})
        self.tell(f"{_count(len(crew.workers), 'worker')} on {_count(hosts, 'machine')}")
        started = self._all(
            worker.seat.ask("start", self.work.words, environment(worker), self.work.folder)
            for worker in crew.workers
        )
        for worker, problem in zip(crew.workers, started, strict=True):
            if problem is not None:
                raise _wrong("RAY008", f"{worker}: {problem}", _INSTALL)

    # -- watching ---------------------------------------------------------------------------------------------------

    def _watch(self, crew: Crew) -> Outcome:
        reads = {worker.seat.ask("read", _READ): worker for worker in crew.workers}
        ends_at: float | None = None
        while reads:
            for future in wait(reads, timeout=_TICK, return_when=FIRST_COMPLETED).done:
                worker = reads.pop(future)
                if not self._hear(worker, future):
                    reads[worker.seat.ask("read", _READ)] = worker
            self._pass_on(list(reads.values()))
            now = time.monotonic()
            if ends_at is None and self._failed():
                ends_at = now + self.grace
            if ends_at is not None and now > ends_at and reads:
                late = ", ".join(str(worker.rank) for worker in reads.values())
                self.tell(f"worker {late}: ended, since another one has failed")
                break
        return self._outcome(crew)

    def _hear(self, worker: Worker, future: Future[Any]) -> bool:
        """Pass on what a worker wrote; whether it has ended."""
        try:
            lines, code = future.result()
        except Lost as lost:
            self._ends[worker.rank] = lost
            return True
        for stream, text in lines:
            self.echo(worker.rank, stream, text)
        if code is not None:
            self._ends[worker.rank] = code
        return code is not None

    def _pass_on(self, running: Sequence[Worker]) -> None:
        """The first signal asks all to end; they agree by themselves on the step. Raise Leave at the second."""
        if self.signals and not self._passed:
            self._passed = True
            self.tell(f"{name_of(self.signals[0])}: every worker finishes its step, saves and ends")
            for worker in running:
                worker.seat.ask("signal", int(signal.SIGTERM))
        if len(self.signals) > 1:
            self.tell(f"{name_of(self.signals[1])}: leaving at once")
            raise Leave(self.signals[1])

    def _failed(self) -> bool:
        return any(isinstance(end, Lost) or (end != 0 and not _asked(end)) for end in self._ends.values())

    def _outcome(self, crew: Crew) -> Outcome:
        # Who was killed or lost has not ended for the sake of another; among the others, the first one counts.
        ends = sorted(self._ends.items(), key=lambda each: not (isinstance(each[1], Lost) or each[1] < 0))
        for rank, end in ends:
            if isinstance(end, int) and (end == 0 or _asked(end)):
                continue
            message = f"{crew.workers[rank]} {_how(end)}"
            if end == 2:
                return Outcome(kind="refused", code=2, message=message)
            return Outcome(kind="lost", code=end if isinstance(end, int) and end > 0 else 1, message=message)
        asked = [end for end in self._ends.values() if isinstance(end, int) and _asked(end)]
        if asked:
            number = self.signals[0] if self._passed else abs(asked[0]) % 128
            return Outcome(kind="interrupted", code=128 + number)
        return Outcome(kind="finished", code=0)


_SHARE = "name with --runs a folder on storage that all machines mount at this path"
_INSTALL = "install nlpkernel, nlpkernel-plugin-ray and the plugins of the plan there, in the same releases"


def _asked(code: int) -> bool:
    """Whether an exit code says that a signal asked for the end."""
    return (-code if code < 0 else code - 128) in ASKED


def _how(end: int | Lost) -> str:
    if isinstance(end, Lost):
        return f"was lost: {end}"
    if end > 0:
        return f"ended with exit code {end}"
    by = " (by somebody, or by the system for want of memory)" if -end == signal.SIGKILL else ""
    return f"was killed by {name_of(-end)}{by}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _wrong(code: str, message: str, hint: str) -> NlpkernelError:
    return fail(UsageError, code, message, owner=OWNER, hint=hint)


def lost(outcome: Outcome, hint: str) -> NlpkernelError:
    """The error of a run that was lost for good."""
    return fail(TrainingError, "RAY009", outcome.message, owner=OWNER, hint=hint)
