"""The processes of one start of a run: started, one of them again where it is lost alone, and ended together."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.supervise import ending
from nlpkernel.supervise.channel import frame, packed
from nlpkernel.supervise.heartbeat import Limits
from nlpkernel.supervise.member import Member
from nlpkernel.supervise.post import LAUNCH, PROCESS, RANK, RESTART, WORLD, Restart
from nlpkernel.supervise.process import Child, Guard

#: Seconds that a process that is no worker gets to end by itself, once it is told to.
LEAVE = 3.0


@attrs.frozen
class Due:
    """A process that is to be started again by itself: `at`, in monotonic seconds, and why."""

    name: str
    at: float
    reason: str


class Crew:
    """Processes that share a launch word, and the guard that outlives their owner. `note` writes a line into the log of
    the run, `selector` wakes the one who watches."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        limits: Limits,
        selector: selectors.BaseSelector,
        note: Callable[[str], None],
    ) -> None:
        self.launch = secrets.token_hex(8)
        self.specs = {spec.name: spec for spec in specs}
        #: The newest process of each name.
        self.members: dict[str, Member] = {}
        self._running: dict[str, Member] = {}
        self._due: dict[str, Due] = {}
        self._limits, self._selector, self._note = limits, selector, note
        self.guard = Guard(self.launch)

    # -- starting --------------------------------------------------------------------------------------------------

    def start(self, name: str, command: Sequence[str], restart: Restart | None) -> None:
        """Start a process, which runs its own command where it has one."""
        spec = self.specs[name]
        world = sum(each.rank is not None for each in self.specs.values())
        environment = {LAUNCH: self.launch, WORLD: str(world), PROCESS: name}
        if spec.rank is not None:
            environment[RANK] = str(spec.rank)
        if restart is not None:
            environment[RESTART] = restart.text()
        child = Child(name, spec.command or command, {**environment, **spec.environment})
        self.guard.add(child.pid)
        child.channel.setblocking(False)
        member = Member(child, spec.rank, self._limits, time.monotonic())
        self.members[name] = self._running[name] = member
        self._selector.register(child.channel, selectors.EVENT_READ, member)
        if child.end is not None:
            self._selector.register(child.end, selectors.EVENT_READ, None)
        self._note(f"{name} started as process {child.pid}")

    def again(self, name: str, at: float, reason: str) -> None:
        """Start it again by itself when the time comes."""
        self._due[name] = Due(name, at, reason)

    def hasten(self) -> None:
        """The time of all that are to be started again has come."""
        now = time.monotonic()
        self._due = {name: attrs.evolve(due, at=now) for name, due in self._due.items()}

    def take_due(self, now: float) -> list[Due]:
        """Those whose time has come."""
        found = [due for due in self._due.values() if due.at <= now]
        for due in found:
            del self._due[due.name]
        return found

    def patience(self, most: float) -> float:
        """Seconds until the next is due, `most` at most."""
        first = min((due.at for due in self._due.values()), default=None)
        return most if first is None else min(most, max(0.0, first - time.monotonic()))

    # -- who is there ----------------------------------------------------------------------------------------------

    @property
    def works(self) -> bool:
        """Whether a worker runs, or is to be started again."""
        names = (*self._running, *self._due)
        return any(self.specs[name].rank is not None for name in names)

    def running(self) -> Iterator[Member]:
        """Those that run, workers first. The others do not count once no worker is left."""
        for member in sorted(self._running.values(), key=lambda each: each.rank is None):
            if member.rank is None and not self.works:
                return
            yield member

    @property
    def step(self) -> int:
        """The furthest step of a worker."""
        return max((each.watch.step for each in self.members.values() if each.rank is not None), default=0)

    @property
    def written(self) -> bool:
        """Whether the first worker has begun, and with it the run's folder holds the plan that is run."""
        return any(member.rank == 0 and member.started for member in self.members.values())

    # -- ending ----------------------------------------------------------------------------------------------------

    def reap(self, member: Member, hurry: Callable[[], bool]) -> None:
        """It has ended, or is ended now: with it what it left in its process group."""
        del self._running[member.name]
        alive = member.child.code is None
        if alive:
            member.child.kill()
        self._forget(member)
        self.guard.drop(member.child.pid)
        left = ending.end([member.child.pid], None, hurry=hurry)
        if left:
            self._note(f"{member.name} left {left} processes, which have been ended")

    def end(self, hear: Callable[[Member], None], hurry: Callable[[], bool]) -> None:
        """End what is there: nothing of it is left. `hear` is asked to read what those say that end by themselves."""
        self._due.clear()
        members = list(self.members.values())
        for member in members:
            if member.rank is not None:
                # Asked to end, it would try to finish its step, for which the others are missing.
                member.child.kill()
                self._forget(member)
        others = [each for each in self._running.values() if each.rank is None]
        self._dismiss(others, hear, hurry)
        left = ending.end([member.child.pid for member in members], self.launch, hurry=hurry)
        if left:
            self._note(f"{left} processes that were left have been ended")
        for member in others:
            member.child.kill()
            # Not before: a process whose channel ends takes its supervisor for gone.
            hear(member)
            self._forget(member)
        self.guard.close()

    def _dismiss(
        self, others: Sequence[Member], hear: Callable[[Member], None], hurry: Callable[[], bool]
    ) -> None:
        """Tell those that are no workers to end, and let them."""
        told: set[str] = set()
        for member in others:
            hear(member)
            if not member.heard and member.child.code is None:
                member.child.signal(signal.SIGTERM)
        deadline = time.monotonic() + LEAVE
        left = list(others)
        while left and not hurry() and time.monotonic() < deadline:
            for member in left:
                hear(member)
                if member.heard and member.name not in told:
                    # One that knows the channel takes a signal for somebody else's.
                    told.add(member.name)
                    self.send(member.name, "stop", {})
                if member.leaving:
                    # What is left of it is an interpreter, which may take a second to go.
                    member.child.kill()
            left = [member for member in left if member.child.code is None]
            time.sleep(0.01)

    def turn_from(self, member: Member) -> None:
        """Nothing more is read from it, and so nothing can be told by its silence. The channel stays open: its end
        would say that the supervisor is gone."""
        if member.listened_to:
            member.listened_to = False
            self._selector.unregister(member.child.channel)

    def _forget(self, member: Member) -> None:
        self.turn_from(member)
        if member.child.end is not None:
            self._selector.unregister(member.child.end)
        member.child.close()

    # -- speaking to them ------------------------------------------------------------------------------------------

    def send(self, name: str, kind: str, body: Mapping[str, Any]) -> None:
        """Tell a process, where it can still be told."""
        member = self.members[name]
        if member.child.channel.fileno() < 0:
            return
        try:
            member.child.channel.sendall(frame(member.sent, kind, packed(body)))
            member.sent += 1
        except OSError as error:
            self._note(f"{name} cannot be told to stop: {error}")

    def pause(self) -> None:
        """Stop all and then this process; go on together."""
        with contextlib.ExitStack() as stack:
            for member in self.members.values():
                member.child.signal_group(signal.SIGSTOP)
                stack.callback(member.child.signal_group, signal.SIGCONT)
            os.kill(os.getpid(), signal.SIGSTOP)
