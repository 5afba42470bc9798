"""A process at its post: what a run's own process knows of its supervisor, and tells it.

`take_post` finds out from the environment. A process that nobody supervises has a post as well, whose questions cost
nothing and whose reports nobody hears, so the engine need not ask which of the two it is.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from nlpkernel.errors import UsageError, fail
from nlpkernel.events import Event
from nlpkernel.supervise import ending, stacks
from nlpkernel.supervise.bridge import event_body, records_sent
from nlpkernel.supervise.channel import CHANNEL, BadFrame, Sender, receive
from nlpkernel.supervise.control import Control
from nlpkernel.supervise.heartbeat import Beats, Pulse
from nlpkernel.supervise.process import Guard

RANK, WORLD, LAUNCH = "NLPKERNEL_RANK", "NLPKERNEL_WORLD", ending.MARK
#: What is known of the restart that this process is, as JSON; see `Restart`.
RESTART = "NLPKERNEL_RESTART"
#: What the communicator calls this process.
PROCESS = "NLPKERNEL_PROCESS"


@attrs.frozen(kw_only=True)
class Restart:
    """Which restart of the run this is: `number` of all, `since` the newest version was saved, and what was lost.
    `alone`: of this process, while the others went on."""

    number: int
    since: int
    reason: str
    alone: bool = False

    def text(self) -> str:
        """As it stands in the environment."""
        return json.dumps(attrs.asdict(self))


class Post:
    """The post of a process that nobody supervises: one of one."""

    rank, world = 0, 1
    #: Whether a supervisor keeps the run's folder.
    supervised = False
    #: Whether anybody wants to hear the events.
    hearing = False
    restart: Restart | None = None
    #: What the communicator calls this process; "" where nobody named it.
    name = ""
    #: Whether it is no worker: it has no part in the run's folder, and rank -1.
    serves = False
    #: Whether the supervisor has told a server to end.
    dismissed = False

    def __init__(self) -> None:
        self.launch = secrets.token_hex(8)
        self.pulse = Pulse()

    @property
    def label(self) -> str:
        """What files of this process in the run's folder are called."""
        return self.name if self.serves else f"rank-{self.rank}"

    @contextmanager
    def manned(self, logs: Path) -> Iterator[None]:
        """While the run goes on. `logs`: the folder for what is to be read later."""
        yield

    @contextmanager
    def telling(self) -> Iterator[None]:
        """While entered, what ends this process with an error is told to the others before anything is closed."""
        yield

    def meet(self, what: str, word: str = "") -> str:
        """The first worker says that it has done `what`, and a word of it; the others wait until it has. Returns that
        word on all of them; on one that need not wait, its own."""
        return word

    def hears(self, event: Event) -> None:
        """An event of this process's bus."""

    def due(self, step: int, received: int | None) -> int | None:
        """The number of the signal for which the run ends before `step` begins, if it does; `received` came to this
        process itself. May wait for others."""
        return received

    def asks(self, number: int) -> None:
        """This process got a signal for which the whole run is to end."""


class SupervisedPost(Post):
    """The post of a process that a supervisor started."""

    supervised = hearing = True

    def __init__(self, sock: socket.socket, environment: dict[str, str]) -> None:
        super().__init__()
        self.serves = RANK not in environment
        self.rank = int(environment.get(RANK, -1))
        self.name = environment.get(PROCESS, "")
        self.world = int(environment.get(WORLD, 1))
        self.launch = environment.get(LAUNCH, self.launch)
        restart = environment.get(RESTART)
        self.restart = Restart(**json.loads(restart)) if restart else None
        self._sock = sock
        self._sender = Sender(sock)
        self._control = Control(lambda body: self._sender.send("answer", body, must=True))
        self._asked = False
        threading.Thread(target=self._listen, name="nlpkernel-control", daemon=True).start()

    @contextmanager
    def manned(self, logs: Path) -> Iterator[None]:
        """Beat, send what is logged, and be ready to write the stacks of all threads into `logs`."""
        path = logs / f"{self.label}.stack"
        with path.open("a", encoding="utf-8") as file, records_sent(self._sender.send):
            if stacks.ASK is not None:
                faulthandler.register(stacks.ASK, file, all_threads=True)
            hello = {"thread": threading.main_thread().ident, "stack": str(path.resolve())}
            self._sender.send("hello", hello, must=True)
            beats = Beats(self.pulse, lambda body: self._sender.send("beat", body))
            try:
                yield
            finally:
                beats.close()
                self._sender.send("bye", {}, must=True)
                self._sender.close()
                if stacks.ASK is not None:
                    faulthandler.unregister(stacks.ASK)
                # An empty one says nothing; one that somebody removed hides nothing of how the run ended.
                with contextlib.suppress(OSError):
                    if not path.stat().st_size:
                        path.unlink()

    def hears(self, event: Event) -> None:
        """Send it."""
        self._sender.send("event", event_body(event))

    def due(self, step: int, received: int | None) -> int | None:
        """One process ends for its own signal. One of several asks that all end, after the same step."""
        if received is not None:
            if self.world < 2:
                return received
            self.asks(received)
        return self._control.may_begin(step, self._waiting)

    def asks(self, number: int) -> None:
        """Tell the supervisor, once. May be called from a signal handler."""
        if not self._asked:
            self._asked = True
            self._sender.send("ask", {"signal": number}, must=True)

    def _waiting(self, waits: bool) -> None:
        self.pulse.enter("waiting" if waits else "step")

    def _listen(self) -> None:
        with contextlib.suppress(BadFrame):
            for message in receive(self._sock):
                body = message.body
                if message.kind == "propose":
                    self._control.propose(body["round"], body["step"])
                elif message.kind == "stop" and self.serves:
                    self._dismiss()
                elif message.kind == "stop":
                    self._control.end(body["step"], body["signal"])
        # The supervisor is gone, and nobody is to outlive it. This process ends at once, and its heir, who waits for
        # that, ends the children: in this order, so that a resource tracker among them finds its owner gone.
        try:
            heir = Guard(self.launch)
            if os.getpgrp() == os.getpid():
                heir.add(os.getpid())
        finally:
            os._exit(1)

    def _dismiss(self) -> None:
        """By a signal to the main thread: it interrupts whatever that one waits in."""
        self.dismissed = True
        ident = threading.main_thread().ident
        assert ident is not None, "the main thread has begun"
        signal.pthread_kill(ident, signal.SIGTERM)


def appointed() -> bool:
    """Whether a supervisor started this process."""
    return CHANNEL in os.environ


def take_post() -> Post | None:
    """This process's post under our supervisor; None where there is none. The environment that names it is taken away,
    since it is not that of its children. Raise UsageError where it names none."""
    number = os.environ.pop(CHANNEL, None)
    if number is None:
        return None
    try:
        sock = socket.socket(fileno=int(number))
        sock.getpeername()
    except (OSError, ValueError) as error:
        message = f"{CHANNEL}={number} names no channel to a supervisor: {error}"
        raise fail(UsageError, "NK606", message, hint=f"unset {CHANNEL}") from error
    sock.set_inheritable(False)
    names = (RANK, WORLD, LAUNCH, RESTART, PROCESS)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    for name in (RANK, WORLD, RESTART, PROCESS):
        os.environ.pop(name, None)
    return SupervisedPost(sock, environment)
