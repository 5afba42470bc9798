"""The council of workers that another launcher started: the first worker keeps it, in a thread, for all.

It plays the part that a supervisor has for processes of its own: it hears the beats of all, tells all who is lost and
why, and settles the step after which all stop. It holds no tensors, and no step waits for it. Light.
"""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.supervise import stacks
from nlpkernel.supervise.channel import BadFrame, Frames, Message, frame, packed
from nlpkernel.supervise.control import Stopping
from nlpkernel.supervise.heartbeat import Limits, Watch
from nlpkernel_torchdist.blame import Cause, Seen, blame, workers
from nlpkernel_torchdist.siblings import is_sibling, is_stopped

#: Seconds between two looks at the workers, where nothing wakes the council.
_TICK = 0.1
#: Seconds that somebody who connects has to say who it is.
_MANNERS = 10.0
#: Connections of which nobody knows yet whose they are.
_STRANGERS = 64
#: Seconds that the workers get to say where they are, and that aborts get to be sent.
_ANSWER, _FLUSH = 2.5, 5.0
#: Seconds until it is said for whom is waited.
_LONG = 10.0

_log = logging.getLogger("nlpkernel.torchdist")

Body = Mapping[str, Any]


class Member:
    """A connection, and from its hello on a worker."""

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock = sock
        self.came = now
        self.rank = -1
        self.watch: Watch | None = None
        self._moves = 0
        self.host, self.pid = "", 0
        self.attempt = 0
        self.started = self.left = False
        self.place: str | None = None
        self.thread, self.stack = 0, ""
        self._frames = Frames()
        self._out = bytearray()
        self._sent = 0

    @property
    def name(self) -> str:
        """What it is called."""
        return f"worker {self.rank}"

    def send(self, kind: str, body: Body) -> None:
        """Have a message sent; what does not go at once goes later."""
        self._out += frame(self._sent, kind, packed(body))
        self._sent += 1
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as it goes."""
        try:
            while self._out:
                del self._out[: self.sock.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # It is gone, which reading tells.

    @property
    def waiting(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._out)

    def read(self) -> tuple[list[Message], bool]:
        """What arrived, and whether more can come. Raise BadFrame."""
        messages: list[Message] = []
        while True:
            try:
                data = self.sock.recv(65536)
            except BlockingIOError:
                return messages, True
            except OSError:
                return messages, False
            if not data:
                return messages, False
            messages += self._frames.feed(data)

    def learn(self, message: Message, now: float) -> None:
        """Take up a beat. Raise BadFrame where it is none."""
        body = message.body
        assert self.watch is not None
        try:
            self.watch.beat(str(body["phase"]), int(body["step"]), int(body["moves"]), now)
        except (KeyError, TypeError, ValueError) as error:
            raise BadFrame("a beat that is none") from error
        self._moves = int(body["moves"])

    def state(self) -> Body:
        """Where it was last, as a beat."""
        assert self.watch is not None
        return {"phase": self.watch.phase, "step": self.watch.step, "moves": self._moves}


@attrs.define(kw_only=True)
class _Looking:
    """Somebody seems lost; before it is said, all are asked where they are."""

    until: float
    error: str
    ranks: list[int]


class Council:
    """Serves `world` workers of the run `run` on a listening socket.

    limits, interval: when somebody is lost, and how often beats come. patience: seconds until all have to be there.
    token: what a worker has to know. ended: called at the end. launch: the word of this start.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        run: str,
        world: int,
        limits: Limits,
        interval: float,
        patience: float,
        token: str,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self._ended = ended
        self._listener, self._run_name, self._world = listener, run, world
        self._limits, self._interval, self._patience, self._token = limits, interval, patience, token
        self.launch = secrets.token_hex(8)
        self._began = time.monotonic()
        self._beaten = 0.0
        self._strangers: list[Member] = []
        self._members: dict[int, Member] = {}
        self._selector = selectors.DefaultSelector()
        self._complete = self._told = False
        self._words: dict[str, str] = {}
        self._stopping: Stopping | None = None
        self._signal: int | None = None
        self._looking: _Looking | None = None
        self.cause: Cause | None = None
        self._ends_at: float | None = None
        self._thread = threading.Thread(target=self._serve, name="nlpkernel-council", daemon=True)

    def start(self) -> None:
        """Serve from now on, until all have left."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until all have left."""
        self._thread.join(timeout)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            while not self._over():
                for key, _ in self._selector.select(_TICK):
                    if key.data is None:
                        self._accept()
                    else:
                        self._hear(key.data)
                self._tick(time.monotonic())
        except Exception:  # noqa: BLE001 - its end tells all workers that there is none
            _log.exception("the council of the workers failed")
        finally:
            # Whoever is still there sees that there is no council any more.
            for member in [*self._strangers, *self._members.values()]:
                member.sock.close()
            self._listener.close()
            self._selector.close()
            self._ended()

    def _over(self) -> bool:
        if self._ends_at is not None:
            quiet = not any(member.waiting for member in self._members.values())
            return (quiet and not self._members) or time.monotonic() > self._ends_at
        return self._complete and all(member.left for member in self._members.values())

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if len(self._strangers) >= _STRANGERS + self._world:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        member = Member(sock, time.monotonic())
        self._strangers.append(member)
        self._selector.register(sock, selectors.EVENT_READ, member)

    def _hear(self, member: Member) -> None:
        try:
            messages, more = member.read()
            for message in messages:
                if member.sock.fileno() < 0:
                    return
                self._take(member, message)
        except BadFrame as error:
            _log.warning("what is no message came from %s: %s", member.name, error)
            more = False
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            _log.warning("a message without sense came from %s: %r", member.name, error)
            more = False
        if not more and member.sock.fileno() >= 0:
            self._gone(member)

    def _tick(self, now: float) -> None:
        for member in list(self._strangers):
            if now - member.came > _MANNERS:
                self._drop(member)
        for member in list(self._members.values()):
            member.flush()
        if not self._complete:
            missing = sorted(set(range(self._world)) - self._members.keys())
            if now - self._began > _LONG and not self._told and self.cause is None:
                self._told = True
                _log.warning("worker 0 waits for %s", workers(missing))
            if now - self._began > self._patience and self.cause is None:
                self._abort(Cause.absent(missing, self._patience))
            return
        if now - self._beaten >= self._interval:
            self._beaten = now
            if (first := self._members.get(0)) is not None:
                self._tell_all("beat", first.state())
        if self._stopping is not None:
            self._stopping.tick(now)
        elif self._signal is not None and all(member.started for member in self._members.values()):
            self._begin_stopping(now)
        if self.cause is None:
            self._look(now)

    # -- what workers say ---------------------------------------------------------------------------------------------

    def _take(self, member: Member, message: Message) -> None:
        now, kind, body = time.monotonic(), message.kind, message.body
        if member.rank < 0:
            if kind == "hello":
                self._greet(member, body, now)
            else:
                self._drop(member)
        elif kind == "beat":
            member.learn(message, now)
        elif kind == "here":
            member.thread, member.stack = int(body["thread"]), str(body["stack"])
        elif kind == "started":
            member.started = True
            assert member.watch is not None
            member.watch.began(int(body["step"]))
        elif kind == "said":
            self._words[str(body["what"])] = str(body["word"])
            self._tell_all("word", body)
        elif kind == "ask":
            self._signal = self._signal or int(body["signal"])
            stopping = self._stopping
            if stopping is not None and stopping.settled:
                member.send("stop", {"step": stopping.step, "signal": stopping.signal})
        elif kind == "answer" and self._stopping is not None:
            self._stopping.answer(str(member.rank), body, now)
        elif kind == "at":
            member.place = str(body["place"])
        elif kind == "failed":
            self._abort(Cause.told(member.rank, self._where(member), body))
            member.send("noted", {})
        elif kind == "bye":
            self._leave(member)

    def _greet(self, member: Member, body: Body, now: float) -> None:
        rank, world = int(body["rank"]), int(body["world"])
        if body["token"] != self._token or body["run"] != self._run_name or not 0 <= rank < max(world, 1):
            self._reject(
                member,
                f"this is the council of another start, of the run {self._run_name!r}, at this address",
                again=True,
            )
        elif world != self._world:
            reason = f"worker {rank} is told that there are {world} workers, and worker 0 that there are {self._world}"
            self._reject(member, reason, again=False)
            if not self._complete:
                self._abort(Cause.wrong(reason))
        elif rank in self._members or self.cause is not None:
            other = self._members.get(rank)
            who = f" as process {other.pid} on {other.host}" if other is not None else ""
            self._reject(member, f"worker {rank} of this start has come already{who}", again=True)
        else:
            self._strangers.remove(member)
            member.rank, member.host, member.pid = rank, str(body["host"]), int(body["pid"])
            member.attempt = int(body["attempt"])
            member.watch = Watch(self._limits, now)
            self._members[rank] = member
            member.send("seen", {})
            if len(self._members) == self._world:
                self._complete = True
                attempt = max(each.attempt for each in self._members.values())
                self._tell_all("welcome", {"launch": self.launch, "attempt": attempt})

    def _reject(self, member: Member, reason: str, *, again: bool) -> None:
        member.send("reject", {"reason": reason, "again": again})
        self._drop(member)

    def _drop(self, member: Member) -> None:
        if member in self._strangers:
            self._strangers.remove(member)
        self._selector.unregister(member.sock)
        member.sock.close()

    def _leave(self, member: Member) -> None:
        member.left = True
        assert member.watch is not None
        member.watch.leave(time.monotonic())
        if self._stopping is not None:
            self._stopping.gone(str(member.rank))
        if member.rank == 0:
            # Its process ends, and the council with it.
            self._tell_all("over", {})

    def _gone(self, member: Member) -> None:
        """Its connection ended."""
        self._drop(member)
        if member.rank < 0 or self._members.get(member.rank) is not member:
            return
        del self._members[member.rank]
        if self._stopping is not None:
            self._stopping.gone(str(member.rank))
        if member.left:
            return
        signal_ = self._stopping.signal if self._stopping is not None else None
        self._abort(Cause.gone(member.rank, self._where(member), signal_))

    def _where(self, member: Member) -> str:
        watch = member.watch
        assert watch is not None
        return watch.where if self._complete else "while the workers came together"

    def _tell_all(self, kind: str, body: Body) -> None:
        for member in self._members.values():
            if member.sock.fileno() >= 0:
                member.send(kind, body)

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _begin_stopping(self, now: float) -> None:
        """All have begun, so there is a step that all can reach."""
        assert self._signal is not None
        there = {str(rank) for rank, member in self._members.items() if not member.left}
        self._stopping = Stopping(self._signal, there, self._send, now)
        watches = [member.watch for member in self._members.values() if member.watch is not None]
        self._stopping.begin(watch.step for watch in watches)

    def _send(self, name: str, kind: str, body: Body) -> None:
        member = self._members.get(int(name))
        if member is not None and member.sock.fileno() >= 0:
            member.send(kind, body)

    # -- who is lost --------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        looking = self._looking
        if looking is None:
            for member in self._members.values():
                if member.sock.fileno() < 0 or member.watch is None:
                    continue
                wrong = member.watch.look(now)
                if wrong is not None:
                    # Where one is stuck, all are in the end: those who wait for it.
                    self._looking = _Looking(until=now + _ANSWER, error=wrong, ranks=[member.rank])
                    self._tell_all("where", {})
                    return
            return
        there = [member for member in self._members.values() if member.sock.fileno() >= 0]
        waited = [member for member in there if member.place is None and not self._is_silent(member, now)]
        if now < looking.until and waited:
            return
        suspects = [member for member in there if member.rank in looking.ranks]
        if suspects and all(member.watch is None or member.watch.look(now) is None for member in suspects):
            # It gets on again.
            self._looking = None
            for member in there:
                member.place = None
            return
        seen = [self._seen(member, now) for member in there]
        cause = blame(looking.error, looking.ranks[0], seen)
        self._abort(cause)
        for each in seen:
            # One that is stopped cannot end by itself, and a launcher may wait long for it.
            if each.rank in cause.ranks and each.silent > _quiet(self._interval) and each.sibling:
                os.kill(each.pid, signal.SIGKILL)

    def _is_silent(self, member: Member, now: float) -> bool:
        return member.watch is not None and member.watch.silent(now) > _quiet(self._interval)

    def _seen(self, member: Member, now: float) -> Seen:
        watch = member.watch
        assert watch is not None
        sibling = member.host == socket.gethostname() and is_sibling(member.pid)
        if member.place is None and member.stack and sibling and not is_stopped(member.pid):
            # It may hold the interpreter, in which case its threads cannot answer.
            text = stacks.ask(lambda number: os.kill(member.pid, number), Path(member.stack))
            member.place = stacks.place(text, member.thread)
        return Seen(
            rank=member.rank,
            where=watch.where,
            still=watch.still(now),
            silent=watch.silent(now),
            quiet=_quiet(self._interval),
            place=member.place,
            stopped=sibling and is_stopped(member.pid),
            sibling=sibling,
            pid=member.pid,
        )

    def _abort(self, cause: Cause) -> None:
        """Say, once, why the run cannot go on."""
        if self.cause is not None:
            return
        self.cause = cause
        self._ends_at = time.monotonic() + _FLUSH
        for member in self._members.values():
            if member.sock.fileno() >= 0:
                member.send("abort", cause.body())


def _quiet(interval: float) -> float:
    """Seconds without a beat after which a worker is not merely late."""
    return 3 * interval
