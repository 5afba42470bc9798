"""A worker's seat in the council: the post of a process that another launcher started. Light."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nlpkernel.errors import NlpkernelError, TrainingError, UsageError, fail
from nlpkernel.events import Event, RunStarted
from nlpkernel.supervise import ending, stacks
from nlpkernel.supervise.channel import BadFrame, Message, Sender, receive
from nlpkernel.supervise.control import Control
from nlpkernel.supervise.heartbeat import Beats, Limits, Watch
from nlpkernel.supervise.post import Post, Restart
from nlpkernel.supervise.process import Guard, name_of
from nlpkernel_torchdist.blame import LONGEST, Cause
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.council import Council
from nlpkernel_torchdist.launchers import Place

#: Seconds that a worker gets to fail by itself when another one has failed: all may have found the same.
_MOMENT = 0.4
#: Seconds that it then gets to close what it has open.
_CLOSING = 15.0
#: Seconds in which a council answers a worker that comes.
_AT_ONCE = 5.0
#: Seconds until what a worker told was received, and that the first worker waits for the others to leave.
_NOTED, _FAREWELL = 1.0, 5.0

_log = logging.getLogger("nlpkernel.torchdist")


class Rejected(Exception):
    """The council does not take this worker. `again`: another start may."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.again = again


class JoinedPost(Post):
    """The post of a worker that another launcher started.

    place: what the launcher says. address: where the workers listen, that of the first one. patience: seconds until
    all have to be there. council: in the first worker, the council itself.
    """

    hearing = True

    def __init__(
        self,
        sock: socket.socket,
        place: Place,
        *,
        run: str,
        token: str,
        address: str,
        limits: Limits,
        interval: float,
        patience: float,
        council: Council | None,
    ) -> None:
        """Take the seat: wait until all workers are there. Raise Rejected where it is not this worker's, TrainingError
        (TDI003) where others do not come, ConnectionError where there is no council, or it ends meanwhile."""
        super().__init__()
        self.place, self.address = place, address
        self.rank, self.world = place.rank, place.world
        self._council = council
        self._sock = sock
        self._sender = Sender(sock)
        self._control = Control(lambda body: self._sender.send("answer", body, must=True))
        self._asked = self._over = self._manned = False
        self._own = ""
        self._words: dict[str, str] = {}
        self._spoken = threading.Condition()
        self._leaving, self._left, self._noted = threading.Event(), threading.Event(), threading.Event()
        self._stack: Path | None = None
        self._first = Watch(Limits(stall=None, silence=limits.silence), time.monotonic())
        hello = {"rank": self.rank, "world": self.world, "run": run, "token": token}
        who = {"host": socket.gethostname(), "pid": os.getpid(), "attempt": place.attempt}
        self._sender.send("hello", {**hello, **who}, must=True)
        # Who listens there may be anybody: a council answers at once.
        sock.settimeout(_AT_ONCE)
        messages = receive(sock)
        try:
            self._welcome(messages, patience)
            sock.settimeout(None)
        except BaseException:
            self._sender.close()
            sock.close()
            raise
        # From here on the others hear of it if it does not get on.
        self._first.beat("opening", 0, 0, time.monotonic())
        threading.Thread(target=self._listen, args=(messages,), name="nlpkernel-seat", daemon=True).start()
        self._beats = Beats(self.pulse, self._beat, interval)

    def _welcome(self, messages: Iterator[Message], patience: float) -> None:
        try:
            for message in messages:
                body = message.body
                if message.kind == "seen":
                    self._sock.settimeout(patience + _AT_ONCE)
                if message.kind == "welcome":
                    self.launch = str(body["launch"])
                    attempt = int(body["attempt"])
                    if attempt:
                        reason = f"started again by {self.place.launcher}"
                        self.restart = Restart(number=attempt, since=1, reason=reason)
                    return
                if message.kind == "reject":
                    raise Rejected(str(body["reason"]), again=bool(body["again"]))
                if message.kind == "abort":
                    cause = Cause.of(body)
                    kind = UsageError if cause.exit_code == 2 else TrainingError
                    raise fail(kind, cause.error, cause.text, owner=OWNER)
        except (BadFrame, KeyError, TypeError, ValueError) as error:
            raise ConnectionError(f"what is no council answered: {error!r}") from error
        raise ConnectionError("there is no council, or it ended before all workers were there")

    # -- what the engine asks -----------------------------------------------------------------------------------------

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell the others of an error before anything is closed: they may be waiting in an exchange."""
        try:
            yield
        except BaseException as error:
            self._tell(error)
            if not self._manned:
                self._beats.close()
                self._close()
            raise

    @contextmanager
    def manned(self, logs: Path) -> Iterator[None]:
        """Beat, be ready to write the stacks of all threads into `logs`, and let no child outlive this process."""
        self._manned = True
        path = self._stack = logs / f"rank-{self.rank}.stack"
        mark, before = f"{self.launch}.{self.rank}", os.environ.get(ending.MARK)
        with path.open("a", encoding="utf-8") as file:
            if stacks.ASK is not None:
                faulthandler.register(stacks.ASK, file, all_threads=True)
            here = {"thread": threading.main_thread().ident or 0, "stack": str(path.resolve())}
            self._sender.send("here", here, must=True)
            guard = Guard(mark)
            os.environ[ending.MARK] = mark
            try:
                yield
            finally:
                self._leaving.set()
                self._beats.close()
                self._sender.send("bye", {}, must=True)
                if self._council is not None:
                    # The store that the others use lives in this process.
                    self._council.join(_FAREWELL)
                self._close()
                if before is None:
                    del os.environ[ending.MARK]
                else:
                    os.environ[ending.MARK] = before
                guard.close()
                if stacks.ASK is not None:
                    faulthandler.unregister(stacks.ASK)
                with contextlib.suppress(OSError):
                    if not path.stat().st_size:
                        path.unlink()

    def _close(self) -> None:
        self._left.set()
        self._sender.close()
        self._sock.close()

    def meet(self, what: str, word: str = "") -> str:
        """By the council."""
        if self.rank == 0:
            self._sender.send("said", {"what": what, "word": word}, must=True)
            return word
        with self._spoken:
            # With a timeout, so that a signal is handled where waiting cannot be interrupted.
            while what not in self._words:
                self._spoken.wait(0.5)
            return self._words[what]

    def hears(self, event: Event) -> None:
        """All that have begun can stop after the same step."""
        if isinstance(event, RunStarted):
            self._sender.send("started", {"step": event.start.step}, must=True)

    def due(self, step: int, received: int | None) -> int | None:
        """A signal for one ends all, after the same step."""
        if received is not None:
            if self.world < 2:
                return received
            if not self._asked:
                self._asked = True
                self._sender.send("ask", {"signal": received}, must=True)
        return self._control.may_begin(step, self._waiting)

    def _waiting(self, waits: bool) -> None:
        self.pulse.enter("waiting" if waits else "step")

    # -- telling ------------------------------------------------------------------------------------------------------

    def _where(self) -> dict[str, object]:
        return {"phase": self.pulse.phase, "step": self.pulse.step, "moves": self.pulse.moves}

    def _beat(self, body: Mapping[str, object]) -> None:
        self._sender.send("beat", body)
        if self.rank == 0 or self._over or self._leaving.is_set():
            return  # After a good end the first worker leaves before the others, who may be slow to close.
        if self._first.look(time.monotonic()) is not None:
            text = f"worker 0 is silent {self._first.where}: no beat for {self._first.silent(time.monotonic()):.0f} s"
            self._end(Cause(error="TDI024", text=text, ranks=(0,)))

    def _tell(self, error: BaseException) -> None:
        """Say why this worker ends."""
        self._leaving.set()
        if isinstance(error, GeneratorExit):
            return  # The caller takes no more steps, as that of each worker does for itself.
        code = 1
        text = traceback.format_exception_only(error)[-1].strip()
        if isinstance(error, NlpkernelError):
            code, text = error.exit_code, str(error)
        elif isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else 1
            if code > 128:
                text = f"ended by {name_of(code - 128)} before its first step was done"
        elif isinstance(error, KeyboardInterrupt):
            code, text = 130, "ended by SIGINT before its first step was done"
        trace = "" if code > 128 else "".join(traceback.format_exception(error))[-LONGEST:]
        self._own = text[:2000]
        self._beat(self._where())
        self._sender.send("failed", {"text": self._own, "trace": trace, "exit_code": code}, must=True)
        self._noted.wait(_NOTED)

    # -- listening ----------------------------------------------------------------------------------------------------

    def _listen(self, messages: Iterator[Message]) -> None:
        with contextlib.suppress(BadFrame, KeyError, TypeError, ValueError):
            for message in messages:
                self._take(message)
        if not self._over and not self._leaving.is_set():
            text = f"worker 0 was lost {self._first.where}: it ended without a word (killed, or its machine is gone)"
            self._end(Cause(error="TDI022", text=text, ranks=(0,)))
        self._noted.set()

    def _take(self, message: Message) -> None:
        kind, body = message.kind, message.body
        if kind == "beat":
            self._first.beat(str(body["phase"]), int(body["step"]), int(body["moves"]), time.monotonic())
        elif kind == "word":
            with self._spoken:
                self._words[str(body["what"])] = str(body["word"])
                self._spoken.notify_all()
        elif kind == "propose":
            self._control.propose(int(body["round"]), int(body["step"]))
        elif kind == "stop":
            self._control.end(int(body["step"]), int(body["signal"]))
        elif kind == "where":
            self._sender.send("at", {"place": self._at()}, must=True)
        elif kind == "over":
            self._over = True
        elif kind == "noted":
            self._noted.set()
        elif kind == "abort":
            self._end(Cause.of(body))

    def _at(self) -> str:
        """Where the main thread is."""
        if self._stack is None:
            return ""
        # Not by a signal, whose handler would look into threads that run meanwhile; here they stand still.
        with self._stack.open("a+", encoding="utf-8") as file:
            start = file.seek(0, os.SEEK_END)
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(start)
            text = file.read()
        return stacks.place(text, threading.main_thread().ident or 0)

    def _end(self, cause: Cause) -> None:
        """The run cannot go on. The main thread may be in an exchange that never ends, so this one ends the process,
        unless the main thread is about to do so."""
        itself = self._leaving.wait(_MOMENT)
        if itself and (self.rank in cause.ranks or (self._own and self._own in cause.text)):
            # It has told so itself. What it closes may wait for those that end now; and this thread has to listen on.
            threading.Thread(target=self._bound, args=(cause.exit_code,), daemon=True).start()
            return
        trace = f"\n{cause.trace.rstrip()}" if cause.trace else ""
        text = f"{cause.error} {cause.text}{trace}"
        _log.error("%s", text)
        sys.stderr.write(f"error: {text}\n")
        sys.stderr.flush()
        if itself:
            self._bound(cause.exit_code)
        else:
            os._exit(cause.exit_code)

    def _bound(self, exit_code: int) -> None:
        """End the process unless its main thread has closed everything in time."""
        if not self._left.wait(_CLOSING):
            os._exit(exit_code)
