"""The one owner of the processes of a run: starts them, watches them, starts them again, stops and ends them."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import TrainingError, fail
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.supervise import bridge
from nlpkernel.supervise.channel import BadFrame, Message
from nlpkernel.supervise.control import Stopping
from nlpkernel.supervise.crew import Crew, Due
from nlpkernel.supervise.heartbeat import Limits
from nlpkernel.supervise.journal import Journal
from nlpkernel.supervise.member import ASKED, Member
from nlpkernel.supervise.post import Restart
from nlpkernel.supervise.process import name_of
from nlpkernel.supervise.restarts import Restarts
from nlpkernel.supervise.signals import Inbox

#: Seconds between two looks at the processes, where nothing wakes the supervisor.
_TICK = 0.25

#: The command of a process that gives none itself: (number of the restart, whether this supervisor saw a version of
#: the run saved) to the command.
CommandOf = Callable[[int, bool], Sequence[str]]


@attrs.frozen(kw_only=True)
class Outcome:
    """How one start of the processes ended. `kind`: "finished", "interrupted" (by a signal), "refused" (a mistake that
    a restart does not mend) or "lost". `code`: what to exit with. `own`: it is a process's own, which has told why.
    `error` and `message` say what is wrong, `step` where."""

    kind: str
    code: int
    own: bool = False
    error: str = ""
    message: str = ""
    step: int = 0


class Supervisor:
    """Runs the processes of a run to their end, whatever that is; `run` says with which code to exit.

    specs: the processes. command: see `CommandOf`. limits: when a process is silent or stuck. log: the file of the one
    log of the run. say: shows a person a line. Afterwards `missing` is the number of messages that were lost on the
    way, `opened` says whether a run was ever opened, and `last` how it ended.
    """

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        command: CommandOf,
        *,
        log: Path,
        restarts: Restarts,
        limits: Limits,
        say: Callable[[str], None],
    ) -> None:
        self._specs, self._command, self._restarts, self._limits = specs, command, restarts, limits
        self._say = say
        self._journal = Journal(log, say=say)
        self._inbox = Inbox()
        self._selector = selectors.DefaultSelector()
        self._crew: Crew
        self._words: Sequence[str] = ()
        # Whether the processes of this start are being ended: what they ask for is had already.
        self._over = False
        self._stopping: Stopping | None = None
        self._saved = False
        # Restarts since a version was saved: the counts of that version know of the earlier ones.
        self._since = 0
        self._ended_by = 0
        self.missing = 0
        self.opened = False
        self.last: Outcome | None = None

    def run(self) -> int:
        """Run to the end. Raise TrainingError where a process was lost and there are no restarts left."""
        try:
            with self._inbox:
                self._selector.register(self._inbox.reader, selectors.EVENT_READ, None)
                return self._run()
        finally:
            self._selector.close()
            self._journal.close()

    def _run(self) -> int:
        reason = ""
        while True:
            outcome = self.last = self._attempt(reason)
            if outcome.kind == "interrupted":
                self._note(f"ended by {name_of(outcome.code - 128)}")
            elif outcome.kind == "finished":
                self._note("finished" + (f"; {self.missing} messages missing" if self.missing else ""))
            if outcome.kind != "lost":
                return outcome.code
            reason = outcome.message
            delay = None if self._stopping is not None else self._restarts.failed(outcome.step)
            if delay is None:
                return self._give_up(outcome)
            self._tell(f"{reason}; restart {self._restarts.used} of {self._restarts.budget} in {delay:g} s")
            self._since += 1
            number = self._wait(delay)
            if number is not None:
                self._note(f"ended by {name_of(number)} before the restart")
                return 128 + number

    def _give_up(self, outcome: Outcome) -> int:
        message, restarts = outcome.message, self._restarts
        if restarts.used:
            message += f"; {restarts.used} restarts are used up"
        if restarts.repeated > 1:
            message += f", and the last {restarts.repeated} failures in a row came in the same step"
        self._note(f"given up: {message}")
        hint = "`nlpkernel resume` continues from the newest version"
        if not restarts.budget:
            hint += "; `--restarts N` does so by itself"
        error = fail(TrainingError, outcome.error, message, hint=hint)
        error.exit_code = outcome.code
        raise error

    # -- one start of all processes --------------------------------------------------------------------------------

    def _attempt(self, reason: str) -> Outcome:
        crew = self._crew = Crew(self._specs, self._limits, self._selector, self._note)
        number, self._over = self._restarts.used, False
        self._words = self._command(number, self._saved)
        try:
            for spec in self._specs:
                crew.start(spec.name, self._words, self._restart(reason) if number else None)
            return self._watch(crew)
        finally:
            self._over = True
            crew.end(self._hear, self._hurried)
            self._journal.write(everything=True)

    def _restart(self, reason: str, *, alone: bool = False) -> Restart:
        return Restart(number=self._restarts.used, since=self._since, reason=reason, alone=alone)

    def _watch(self, crew: Crew) -> Outcome:
        while crew.works:
            for key, _ in self._selector.select(crew.patience(_TICK)):
                if key.data is not None:
                    self._hear(key.data)
            self._inbox.drain()
            if (number := self._signalled()) is not None:
                return Outcome(kind="interrupted", code=128 + number)
            now = time.monotonic()
            for member in crew.running():
                outcome = self._look(member, now)
                if outcome is not None:
                    return outcome
            for due in crew.take_due(now):
                self._start_alone(due)
            if self._stopping is not None:
                self._stopping.tick(now)
            if crew.guard.renew():
                self._note("the guard was killed, and started again")
            self._journal.write()
        if self._ended_by:
            return Outcome(kind="interrupted", code=self._ended_by)
        return Outcome(kind="finished", code=0)

    def _look(self, member: Member, now: float) -> Outcome | None:
        """None where the others are to go on."""
        code = member.child.code
        if code is not None:
            outcome = self._ended(member, code)
        elif (trouble := member.trouble(now)) is not None:
            error, message = trouble
            outcome = Outcome(kind="lost", code=1, error=error, message=message, step=self._step_of(member))
        else:
            return None
        if outcome is None or outcome.kind != "lost" or not self._spares(member):
            return outcome
        if code is None:
            self._crew.reap(member, self._hurried)
        self._again(member.name, outcome.message)
        return None

    def _ended(self, member: Member, code: int) -> Outcome | None:
        """A process ended; None where the others are to go on."""
        self._hear(member)
        self._crew.reap(member, self._hurried)
        self._note(member.end_of(code))
        if self._stopping is not None:
            self._stopping.gone(member.name)
        if code == 0:
            return None
        number = -code if code < 0 else code - 128
        if number in ASKED and member.rank is None and self._spares(member):
            # A server that did not live to say so. The workers may need another one to finish their step.
            self._asked(member, number)
        elif number in ASKED:
            stopping = self._stopping
            self._ended_by = 128 + (number if stopping is None else stopping.signal)
            # Where all were asked, each comes to its own end.
            return None if stopping is not None else Outcome(kind="interrupted", code=self._ended_by)
        if code == 2:
            return Outcome(kind="refused", code=2)
        message = member.end_of(code)
        if -code == signal.SIGKILL:
            message += " (by somebody, or by the system for want of memory)"
        return Outcome(
            kind="lost",
            code=code if code > 0 else 1,
            own=code > 0,
            error="NK601",
            message=message,
            step=self._step_of(member),
        )

    def _step_of(self, member: Member) -> int:
        """Where the run stood; one that is no worker has no steps."""
        return self._crew.step if member.rank is None else member.watch.step

    # -- one process again -----------------------------------------------------------------------------------------

    def _spares(self, member: Member) -> bool:
        """Whether the others go on without it until it is there again. A worker that comes back would not know where
        the others stop."""
        stops = member.rank is not None and self._stopping is not None
        return self._crew.specs[member.name].alone and self._restarts.left > 0 and not stops

    def _again(self, name: str, reason: str) -> None:
        restarts = self._restarts
        delay = restarts.failed(self._crew.step)
        assert delay is not None, "there are restarts left"
        if self._stopping is not None:
            delay = 0.0  # Whoever wants a run to end does not wait a minute.
        self._tell(f"{reason}; restart {restarts.used} of {restarts.budget} of {name} alone in {delay:g} s")
        self._crew.again(name, time.monotonic() + delay, reason)

    def _start_alone(self, due: Due) -> None:
        if self._crew.specs[due.name].rank is not None and self._stopping is not None:
            return
        # The plan that the command line named may have been changed since.
        words = self._command(self._restarts.used, True) if self._crew.written else self._words
        self._crew.start(due.name, words, self._restart(due.reason, alone=True))

    # -- what processes tell ---------------------------------------------------------------------------------------

    def _hear(self, member: Member) -> None:
        if not member.listened_to:
            return
        try:
            messages, more = member.read()
            for message in messages:
                self._take(member, message)
        except BadFrame as error:
            self._note(f"{member.name} sent what is no message: {error}; nothing more is read from it")
            more = False
        if not more:
            self._crew.turn_from(member)

    def _take(self, member: Member, message: Message) -> None:
        now, body = time.monotonic(), message.body
        if message.missing:
            self.missing += message.missing
            self._note(f"{member.name}: {message.missing} messages missing before #{message.number}")
        member.learn(message, now)
        if message.kind in ("event", "log"):
            try:
                if message.kind == "event":
                    self._event(member, body)
                text, told = bridge.line_of(message.kind, body), float(body["time"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise BadFrame(f"a {message.kind} that is none") from error
            if body.get("name") not in bridge.SILENT:
                self._journal.add(member.name, message.number, told, text)
        elif message.kind == "ask" and (member.started or member.rank is None) and not self._over:
            self._asked(member, int(body["signal"]))
        elif message.kind == "answer" and self._stopping is not None:
            self._stopping.answer(member.name, body, now)

    def _event(self, member: Member, body: Mapping[str, Any]) -> None:
        if body["name"] == bridge.STARTED:
            member.started = self.opened = True
            member.watch.began(int(body["fields"]["start"]["step"]))
        elif body["name"] == bridge.SAVED:
            self._saved, self._since = True, 0
        progress = body["fields"].get("progress")
        if isinstance(progress, dict):
            member.watch.reached(int(progress["step"]))

    # -- signals and stopping --------------------------------------------------------------------------------------

    def _signalled(self) -> int | None:
        """Act on signals that came; the number of the one for which everybody leaves at once, if one did."""
        inbox = self._inbox
        if inbox.pauses:
            inbox.pauses = 0
            self._crew.pause()
        if self._stopping is None and inbox.ends:
            self._note(f"{name_of(inbox.ends[0])}: every process finishes its step, saves and ends")
            self._stop(inbox.ends[0])
        if len(inbox.ends) > 1:
            self._tell(f"{name_of(inbox.ends[1])}: leaving at once")
            return inbox.ends[1]
        return None

    def _hurried(self) -> bool:
        return len(self._inbox.ends) > 1

    def _asked(self, member: Member, number: int) -> None:
        """A process among several got a signal itself."""
        if self._stopping is None:
            self._note(
                f"{member.name} got {name_of(number)}: every process finishes its step, saves and ends"
            )
            self._stop(number)
        elif self._stopping.settled and member.rank is not None:
            self._crew.send(
                member.name, "stop", {"step": self._stopping.step, "signal": self._stopping.signal}
            )

    def _stop(self, number: int) -> None:
        self._crew.hasten()
        workers = {name: each for name, each in self._crew.members.items() if each.rank is not None}
        alive = {name: each for name, each in workers.items() if each.child.code is None}
        self._stopping = Stopping(number, set(alive), self._crew.send, time.monotonic())
        if all(each.started for each in alive.values()):
            self._stopping.begin(each.watch.step for each in alive.values())
            return
        # Before all have begun there is no step that all could reach, and nothing to save that is not saved.
        self._stopping.begin_at_once()
        for member in alive.values():
            if not member.started:
                member.child.signal(signal.SIGTERM)

    def _wait(self, delay: float) -> int | None:
        """Wait before a restart; the number of a signal that came meanwhile."""
        self._journal.write(everything=True)
        deadline = time.monotonic() + delay
        while not self._inbox.ends:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._selector.select(left)
            self._inbox.drain()
        return self._inbox.ends[0]

    # -- telling ---------------------------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        self._journal.note(text)

    def _tell(self, text: str) -> None:
        self._note(text)
        self._say(text)
