"""One process of a run as the supervisor knows it: what it told, and how it came to its end."""

from __future__ import annotations

import signal
from pathlib import Path

from nlpkernel.supervise import stacks
from nlpkernel.supervise.channel import BadFrame, Frames, Message
from nlpkernel.supervise.heartbeat import Limits, Watch
from nlpkernel.supervise.process import Child, name_of

#: Signals that end a run and are no failure of it.
ASKED = tuple(
    int(number)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1")
    if (number := getattr(signal, name, None)) is not None
)


class Member:
    """A child, its watch, and what it said of itself. `rank` is None for one that is no worker."""

    def __init__(self, child: Child, rank: int | None, limits: Limits, now: float) -> None:
        self.child, self.rank = child, rank
        self.watch = Watch(limits, now)
        self.started = False
        #: Whether it ever told anything: a server may not know the channel, and is not watched then.
        self.heard = False
        self.listened_to = True
        #: Whether it said that it ends: all that it had is closed.
        self.leaving = False
        self.sent = 0
        self._frames = Frames()
        self._thread = 0
        self._stack: Path | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.child.name

    @property
    def missing(self) -> int:
        """How many of its messages never arrived."""
        return self._frames.missing

    def read(self) -> tuple[list[Message], bool]:
        """What arrived since the last time, and whether more can come. Never waits. Raise BadFrame."""
        messages: list[Message] = []
        while True:
            try:
                data = self.child.channel.recv(65536)
            except BlockingIOError:
                return messages, True
            except OSError:
                return messages, False
            if not data:
                return messages, False
            messages += self._frames.feed(data)

    def learn(self, message: Message, now: float) -> None:
        """Take up what it says of itself. Raise BadFrame where that makes no sense."""
        body = message.body
        self.heard = True
        try:
            if message.kind == "beat":
                self.watch.beat(str(body["phase"]), int(body["step"]), int(body["moves"]), now)
            elif message.kind == "bye":
                self.leaving = True
                self.watch.leave(now)
            elif message.kind == "hello":
                self._thread, self._stack = int(body["thread"]), Path(body["stack"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadFrame(f"a {message.kind} that is none") from error

    def trouble(self, now: float) -> tuple[str, str] | None:
        """Code and message of what is wrong with a process that runs; None where nothing is."""
        watch = self.watch
        if not self.listened_to or (self.rank is None and not self.heard):
            return None
        wrong = watch.look(now)
        if wrong is None:
            return None
        where, held = watch.where, ""
        if self.child.stopped():
            held = "; it is stopped (SIGSTOP or a debugger)"
        elif self._stack is not None:
            place = stacks.place(stacks.ask(self.child.signal, self._stack), self._thread)
            held = f"; it is at {place}" if place else ""
        if wrong == "silent":
            return "NK603", f"{self.name} is silent {where}: no beat for {watch.silent(now):.0f} s{held}"
        return "NK602", f"{self.name} is stuck {where}: it has not got on for {watch.still(now):.0f} s{held}"

    def end_of(self, code: int) -> str:
        """How it ended, as a clause."""
        where = self.watch.where
        if code == 0 or code - 128 in ASKED:
            return f"{self.name} ended with exit code {code}"
        if code > 0:
            return f"{self.name} ended with exit code {code} {where}"
        return f"{self.name} was killed by {name_of(-code)} {where}"
