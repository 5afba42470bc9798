"""Running a plan: `run` to its end, `train` step by step with the events as they happen."""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from nlpkernel import runs
from nlpkernel.engine.environment import environment, log_file
from nlpkernel.engine.looking import per_epoch
from nlpkernel.engine.opening import activate, open_session
from nlpkernel.engine.serving import serve
from nlpkernel.engine.session import Session
from nlpkernel.engine.signals import Signals
from nlpkernel.errors import CheckpointError, NlpkernelError, UsageError, fail
from nlpkernel.events import Event, Restarted, RunEnded, RunStarted
from nlpkernel.lock import Locked, threads_of
from nlpkernel.plan import Plan
from nlpkernel.report import Count, Report
from nlpkernel.supervise.post import Post, take_post

if TYPE_CHECKING:
    from nlpkernel.plugins.hooks import Watch

_log = logging.getLogger("nlpkernel.engine")
#: What the first worker says of the run's folder.
_BEGIN, _RESUME = "begin", "resume"


def run(
    plan: Plan,
    *,
    runs_folder: str | Path = "runs",
    overwrite: bool = False,
    resume: str | None = None,
    allow: Sequence[str] = (),
) -> Report:
    """Run a plan to its end and report.

    The run gets the folder `runs_folder`/name; one that exists is refused, unless `overwrite` replaces it or `resume`
    continues it ("newest", or the name of a version). What would make a continued run another one (a seed, the data, a
    plugin's release) is refused unless `allow` names it. Raise what ended it: PlanError, DataError, TrainingError, ...
    """
    loop = Loop(plan, Path(runs_folder) / plan.name, overwrite=overwrite, resume=resume, allow=allow)
    for _ in loop.steps():
        pass
    return loop.report()


def train(
    plan: Plan,
    *,
    runs_folder: str | Path = "runs",
    overwrite: bool = False,
    resume: str | None = None,
    allow: Sequence[str] = (),
) -> Iterator[Event]:
    """Run a plan and yield every event of it, as `run` would run it.

    Closing the iterator early ends the run, saved and closed. What ends a run is raised after its last event.
    """
    events: deque[Event] = deque()
    folder = Path(runs_folder) / plan.name
    loop = Loop(plan, folder, overwrite=overwrite, resume=resume, allow=allow, listen=events.append)
    with closing(loop.steps()) as steps:
        try:
            for _ in steps:
                while events:
                    yield events.popleft()
        except Exception:
            # What was told before it failed belongs to it.
            yield from events
            raise
    yield from events


class Loop:
    """One run from its folder to its report.

    `continues`: a run that exists is resumed, by the words that would begin it. `allow` names what a continued run may
    have otherwise than its version. `locked` is a lock that must hold in every point. `listen` is told every event.
    `limit` ends the run after so many steps, as if it were its length. `signal` is the number of the signal that ended
    it, if one did. `quiet`: warnings only are to be seen. `rehearsal`: nothing is to be left outside the folder.
    `post` is that of this process, where the caller knows it. `watch` is told of every call of a component.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        overwrite: bool = False,
        resume: str | None = None,
        continues: bool = False,
        allow: Sequence[str] = (),
        locked: Locked | None = None,
        listen: Callable[[Event], None] | None = None,
        limit: int | None = None,
        quiet: bool = False,
        rehearsal: bool = False,
        post: Post | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.plan, self.folder, self.overwrite, self.resume = plan, folder, overwrite, resume
        self.continues, self.allow, self.locked = continues, allow, locked
        self.listen, self.limit, self.quiet = listen, limit, quiet
        self.rehearsal, self.watch = rehearsal, watch
        self.session: Session | None = None
        self.status, self.reason = "failed", ""
        self.signal: int | None = None
        self._given = post
        self._post = post or Post()
        self._started_at: int | None = None
        self._took = False
        self._report: Report | None = None

    def steps(self) -> Generator[Session]:
        """Open the run, take its steps, and close it, whatever happens. Yields after each step. In a process that is no
        worker it serves instead, and yields nothing."""
        post = self._post = self._given or take_post() or self._joined() or Post()
        if post.serves:
            serve(self.plan, self.folder, post, quiet=self.quiet, threads=self._threads_before())
            return
        start = time.monotonic()
        with ExitStack() as stack, post.telling():
            stack.callback(self._forget_unopened)
            self._take_folder(stack)
            logs = self.folder / runs.LOGS
            stack.enter_context(log_file(logs / f"{post.label}.log"))
            stack.enter_context(post.manned(logs))
            stack.enter_context(environment(self.plan.train, self._threads_before()))
            signals = stack.enter_context(Signals())
            stack.callback(self._note_signal, signals)
            session = open_session(
                self.plan,
                self.folder,
                stack,
                self.listen,
                quiet=self.quiet,
                post=post,
                rehearsal=self.rehearsal,
                watch=self.watch,
            )
            if self.locked is not None:
                self.locked.hold(session.lock, self.plan.text())
            self.session = session
            if self.resume is None and post.rank == 0:
                runs.forget_replaced(self.folder)
            stack.callback(self._end, start)
            try:
                begins = self.resume is None or not self._load(session)
                if post.rank == 0:
                    if begins:
                        runs.point_latest(self.folder)
                    session.lock.write(self.folder / runs.LOCK)
                self._started(session)
                signals.armed = True
                yield from self._advance(session, signals)
            except GeneratorExit:
                self.status, self.reason = "stopped", "the caller took no more events"
                session.save()
                session.versions.settle(wait=True)
                raise
            except (KeyboardInterrupt, SystemExit):
                self.status, self.reason = "interrupted", signals.name
                raise
            except BaseException as error:
                self.reason = _first_line(error)
                raise

    def _joined(self) -> Post | None:
        """The post that another launcher gave this process, as the communicator knows. A rehearsal is one process's."""
        if self.rehearsal:
            return None
        run, hooks, composition = activate(self.plan, self.folder)
        component = composition.slot("communicator").component
        if not hasattr(component, "join"):
            return None
        post: Post | None = hooks.ask(component, "join", run=run)
        return post

    def _advance(self, session: Session, signals: Signals) -> Iterator[Session]:
        session.end = session.length if self.limit is None else min(session.length, self.limit)
        session.run.end = session.end
        pulse, due = session.run.pulse, self._post.due
        reason = f"all {session.progress.step} steps were done before"
        # A policy that is asked of the last evaluation may take the run back, and it goes on from there.
        while session.stop is None and session.progress.step < session.end:
            pulse.enter("step")
            while session.stop is None and session.progress.step < session.end:
                session.advance()
                number = due(session.progress.step + 1, signals.received)
                if number is not None:
                    self.signal = number
                    session.stop = session.stop or ("interrupted", signal.Signals(number).name)
                yield session
            pulse.enter("closing")
            session.finish()
            reason = ""
        self.status, self.reason = session.stop or ("finished", reason)

    def _take_folder(self, stack: ExitStack) -> None:
        """Make or find the run's folder, and own it as long as this process is the run's first worker."""
        post = self._post
        leads = post.rank == 0
        known = _RESUME if self._known() else _BEGIN
        if not leads:
            known = post.meet("folder", known)  # As the first worker found it.
        if self.resume is None and known == _RESUME:
            self.resume = "newest"
        stored = "checkpoint" in self.plan.filled.value
        if (self.resume is not None or self.continues) and not stored and post.restart is None:
            raise fail(
                UsageError, "NK304", "the plan has no [checkpoint], so there is nothing to resume from"
            )
        if self.resume is not None:
            self.folder = runs.find(self.folder)
        elif leads and not post.supervised:
            runs.create(self.folder, overwrite=self.overwrite)
        if leads:
            stack.enter_context(runs.claim(self.folder, watched=post.supervised))
        if leads and self.resume is None and not post.supervised:
            runs.still_new(self.folder)
            self._took = True
            runs.write(self.folder / runs.PLAN, self.plan.text())
        if leads:
            post.meet("folder", known)

    def _known(self) -> bool:
        """Whether the words of a start mean a run that began before: a launcher that starts it again repeats them."""
        if not self.continues and self._post.restart is None:
            return False
        # What supervises a run has written its plan before the run began.
        begun = (self.folder / runs.LOCK).is_file() or not self._post.supervised
        return begun and (self.folder / runs.PLAN).is_file()

    def _threads_before(self) -> int | None:
        continued = self.resume is not None or (self._post.serves and self._known())
        if not continued or not (self.folder / runs.LOCK).is_file():
            return None
        return threads_of(self.folder / runs.LOCK)

    def _forget_unopened(self) -> None:
        """A run that could not be opened leaves no folder that would stand in the way of the next try."""
        if self.session is None and self._took:
            runs.remove(self.folder)
            runs.put_back(self.folder)

    def _note_signal(self, signals: Signals) -> None:
        """A signal that came when there was no further step: what was to be done is done, and the exit code says so."""
        if self.signal is None:
            self.signal = signals.received

    def _load(self, session: Session) -> bool:
        """Take up a version. A run that is started again and has none yet begins anew: then False."""
        if session.versions.empty:
            if self._post.restart is None and not self.continues:
                raise fail(
                    CheckpointError, "NK501", f"{str(self.folder)!r} has no complete version to resume from"
                )
            session.run.notice("the kernel", "no version was complete, so the run begins anew")
            return False
        session.load(None if self.resume == "newest" else self.resume, allow=self.allow)
        if self._post.rank == 0:
            runs.write(self.folder / runs.PLAN, self.plan.text())
        return True

    def _started(self, session: Session) -> None:
        self._started_at = session.progress.step
        if self._post.rank == 0:
            # It tells of the process before this one, and would stay if this one is killed.
            (self.folder / runs.REPORT).unlink(missing_ok=True)
        restart = self._post.restart
        if restart is not None:
            session.run.count("the supervisor", "restarts", restart.since)
        session.bus.publish(
            RunStarted(
                time=time.time(),
                name=self.plan.name,
                folder=str(self.folder),
                start=session.progress,
                steps=session.length,
                steps_per_epoch=per_epoch(session.data),
                parameters=session.names.elements,
                device=str(session.group.device),
                precision=session.work.precision.name,
                world=session.group.world,
            )
        )
        if restart is not None:
            session.bus.publish(
                Restarted(
                    time=time.time(),
                    progress=session.progress,
                    number=restart.number,
                    reason=restart.reason,
                )
            )
        if session.progress.step == 0 and session.run.train.evaluate.start:
            session.evaluate()

    def _end(self, start: float) -> None:
        """Tell how it ended and write the report, before the run's parts close."""
        seconds = time.monotonic() - start
        session = self.session
        assert session is not None, "registered once the session is open"
        if self._started_at is None and self.resume is not None:
            return  # Refused before it took up anything: the run stands where it stood, and so does its report.
        try:
            session.versions.settle(wait=True)
        except NlpkernelError as error:
            # What ended the run is on its way up already, and this must not hide it.
            _log.warning("the last version was not written: %s", error)
        try:
            session.bus.publish(
                RunEnded(
                    time=time.time(),
                    progress=session.progress,
                    status=self.status,
                    reason=self.reason,
                    seconds=seconds,
                )
            )
        finally:
            self._report = self._make_report(session, seconds)
            if self._post.rank == 0:
                self._keep(self._report)

    def _keep(self, report: Report) -> None:
        try:
            report.write(self.folder / runs.REPORT)
        except NlpkernelError as error:
            # The run ended as it ended, and its caller has the report; a full disk must not hide what it says.
            _log.warning("the report of %s is missing: %s", self.folder, error)

    @property
    def leads(self) -> bool:
        """Whether this process is the run's first worker, which speaks for all."""
        return self._post.rank == 0

    def report(self) -> Report:
        """What the run came to, once its steps are through."""
        assert self._report is not None, "a run that was not opened has raised"
        return self._report

    def _make_report(self, session: Session, seconds: float) -> Report:
        memory, hooks = session.memory, session.hooks
        failures = [f"{owner}: {number} failed events" for owner, number in session.bus.failures.items()]
        return Report(
            name=self.plan.name,
            folder=str(self.folder),
            status=self.status,
            reason=self.reason,
            progress=session.progress,
            length=session.length,
            metrics=dict(memory.metrics),
            main=memory.main[0],
            best=memory.best,
            best_step=memory.best_step,
            counts=tuple(
                Count(source=source, what=what, number=number)
                for (source, what), number in sorted(session.run.counts.items())
            ),
            detached=tuple(
                failures + [f"{owner} ({hook}): {error}" for owner, hook, error in hooks.detached]
            ),
            version=session.versions.current,
            seconds=seconds,
        )


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
