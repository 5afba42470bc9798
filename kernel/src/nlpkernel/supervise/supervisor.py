"""The one owner of the processes of a run: starts them, watches them, starts them again, stops and ends them."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import TrainingError, fail
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.supervise import bridge, ending
from nlpkernel.supervise.channel import BadFrame, Message, frame, packed
from nlpkernel.supervise.control import Stopping
from nlpkernel.supervise.heartbeat import Limits
from nlpkernel.supervise.journal import Journal
from nlpkernel.supervise.member import ASKED, Member
from nlpkernel.supervise.post import LAUNCH, RANK, RESTART, WORLD, Restart
from nlpkernel.supervise.process import Child, Guard, name_of
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
        self._members: dict[str, Member] = {}
        self._selector = selectors.DefaultSelector()
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
        launch = secrets.token_hex(8)
        guard = Guard(launch)
        try:
            self._start(launch, reason, guard)
            return self._watch(guard)
        finally:
            # However it ended: nothing of it is left.
            for member in self._members.values():
                self._forget(member)
                if member.rank is not None:
                    # Asked to end, it would try to finish its step, for which the others are missing.
                    member.child.kill()
            groups = [member.child.pid for member in self._members.values()]
            left = ending.end(groups, launch, hurry=self._hurried)
            if left:
                self._note(f"{left} processes that were left have been ended")
            for member in self._members.values():
                member.child.kill()
            self._members.clear()
            guard.close()
            self._journal.write(everything=True)

    def _start(self, launch: str, reason: str, guard: Guard) -> None:
        number = self._restarts.used
        common = {LAUNCH: launch, WORLD: str(sum(spec.rank is not None for spec in self._specs))}
        if number:
            common[RESTART] = Restart(number=number, since=self._since, reason=reason).text()
        for spec in self._specs:
            own = {} if spec.rank is None else {RANK: str(spec.rank)}
            command = spec.command or self._command(number, self._saved)
            child = Child(spec.name, command, {**common, **own, **spec.environment})
            guard.add(child.pid)
            child.channel.setblocking(False)
            member = Member(child, spec.rank, self._limits, time.monotonic())
            self._members[spec.name] = member
            self._selector.register(child.channel, selectors.EVENT_READ, member)
            if child.end is not None:
                self._selector.register(child.end, selectors.EVENT_READ, None)
            self._note(f"{spec.name} started as process {child.pid}")

    def _watch(self, guard: Guard) -> Outcome:
        running = dict(self._members)
        while any(member.rank is not None for member in running.values()):
            for key, _ in self._selector.select(_TICK):
                if key.data is not None:
                    self._hear(key.data)
            self._inbox.drain()
            if (number := self._signalled()) is not None:
                return Outcome(kind="interrupted", code=128 + number)
            now = time.monotonic()
            for name, member in list(running.items()):
                code = member.child.code
                if code is not None:
                    del running[name]
                    outcome = self._ended(member, code, guard)
                    if outcome is not None:
                        return outcome
                elif (trouble := member.trouble(now)) is not None:
                    error, message = trouble
                    return Outcome(kind="lost", code=1, error=error, message=message, step=member.watch.step)
            if self._stopping is not None:
                self._stopping.tick(now)
            if guard.renew():
                self._note("the guard was killed, and started again")
            self._journal.write()
        if self._ended_by:
            return Outcome(kind="interrupted", code=self._ended_by)
        return Outcome(kind="finished", code=0)

    def _ended(self, member: Member, code: int, guard: Guard) -> Outcome | None:
        """A process ended; None where the others are to go on."""
        self._hear(member)
        self._forget(member)
        guard.drop(member.child.pid)
        left = ending.end([member.child.pid], None, hurry=self._hurried)
        if left:
            self._note(f"{member.name} left {left} processes, which have been ended")
        self._note(member.end_of(code))
        if self._stopping is not None:
            self._stopping.gone(member.name)
        if code == 0:
            return None
        number = -code if code < 0 else code - 128
        if number in ASKED:
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
            step=member.watch.step,
        )

    def _turn_from(self, member: Member) -> None:
        """Nothing more is read from it, and so nothing can be told by its silence. The channel stays open: its end
        would say that the supervisor is gone."""
        if member.listened_to:
            member.listened_to = False
            self._selector.unregister(member.child.channel)

    def _forget(self, member: Member) -> None:
        """It has ended, or is about to be."""
        self._turn_from(member)
        if member.child.end is not None:
            self._selector.unregister(member.child.end)
        member.child.close()

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
            self._turn_from(member)

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
        elif message.kind == "ask" and member.started:
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
            self._pause()
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
        """A worker among several got a signal itself."""
        if self._stopping is None:
            self._note(
                f"{member.name} got {name_of(number)}: every process finishes its step, saves and ends"
            )
            self._stop(number)
        elif self._stopping.settled:
            self._send(member.name, "stop", {"step": self._stopping.step, "signal": self._stopping.signal})

    def _stop(self, number: int) -> None:
        workers = {name: each for name, each in self._members.items() if each.rank is not None}
        alive = {name: each for name, each in workers.items() if each.child.code is None}
        self._stopping = Stopping(number, set(alive), self._send, time.monotonic())
        if all(each.started for each in alive.values()):
            self._stopping.begin(each.watch.step for each in alive.values())
            return
        # Before all have begun there is no step that all could reach, and nothing to save that is not saved.
        self._stopping.begin_at_once()
        for member in alive.values():
            if not member.started:
                member.child.signal(signal.SIGTERM)

    def _send(self, name: str, kind: str, body: Mapping[str, Any]) -> None:
        member = self._members[name]
        if member.child.channel.fileno() < 0:
            return
        try:
            member.child.channel.sendall(frame(member.sent, kind, packed(body)))
            member.sent += 1
        except OSError as error:
            self._note(f"{name} cannot be told to stop: {error}")

    def _pause(self) -> None:
        """Ctrl-Z: stop all, then this process; go on together."""
        self._inbox.pauses = 0
        for member in self._members.values():
            member.child.signal_group(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for member in self._members.values():
            member.child.signal_group(signal.SIGCONT)

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
