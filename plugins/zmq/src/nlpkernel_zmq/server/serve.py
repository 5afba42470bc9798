"""The loop of a server process."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import zmq

from nlpkernel.errors import TrainingError, fail
from nlpkernel_zmq import sockets
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.descriptors import for_server, reserve
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.memory import available
from nlpkernel_zmq.release import RELEASE
from nlpkernel_zmq.security.folder import LAUNCH, folder_of
from nlpkernel_zmq.security.keys import READER
from nlpkernel_zmq.server.coordinator import Coordinator, Limits
from nlpkernel_zmq.server.door import Door
from nlpkernel_zmq.server.free import FreeShard
from nlpkernel_zmq.server.generation import Generation
from nlpkernel_zmq.server.readers import Readers
from nlpkernel_zmq.server.shard import Shard
from nlpkernel_zmq.server.snapshots import Snapshots
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.compressor import Compressor
    from nlpkernel_zmq.component import ZmqPs
    from nlpkernel_zmq.server.model import MakeOptimizer

_log = logging.getLogger("nlpkernel.zmq")
#: Seconds between two beats of a shard to the coordinator.
BEAT = 0.5
#: Seconds that workers of other machines get to take the last parameters, and to hear that there are no more;
#: milliseconds for what is still under way to them then.
_FAREWELL, _HEARD, _LINGER = 1.5, 3.0, 300
#: Bytes of a payload beside pieces of a gradient: words of a meeting.
_LARGEST = 64 << 20
#: What comes in many messages, or goes before those.
_LARGE = (m.Release, m.Params, m.State)


def serve(settings: ZmqPs, run: Run, make: MakeOptimizer) -> None:
    """Serve until the process is asked to end."""
    number = int(run.process.rpartition("-")[2])
    needed = for_server(settings.workers, settings.servers)
    reserve(needed, f"a server of {settings.workers} workers")
    folder = run.folder / ".servers" / f"shard-{number}"
    with Generation(folder) as generation:
        snapshots = Snapshots(folder, run.launch) if settings.replay else None
        try:
            server = Server(settings, run, number, generation.number, make, snapshots)
        except SystemExit:
            # Asked to end while it takes up what there is, as one that was killed just before the end of a run.
            _leave(run, number, snapshots)
            raise
        try:
            server.run()
        except SystemExit:
            server.farewell()
            server.close(over=True)
            raise
        except BaseException:
            # The one that is started again by itself takes up what there is.
            server.close(over=False)
            raise


def _leave(run: Run, number: int, snapshots: Snapshots | None) -> None:
    """Leave nothing behind of a run that is over."""
    if snapshots is not None:
        snapshots.remove()
    if number == 0:
        (folder_of(run) / LAUNCH).unlink(missing_ok=True)
        sockets.leave(run.launch)


def _made(run: Run, component: Any) -> Compressor | None:
    made: Compressor | None = None if component is None else run.ask(component, "create_compressor")
    return made


class Server:
    """One shard, with the coordinator where it is the first."""

    def __init__(
        self,
        settings: ZmqPs,
        run: Run,
        number: int,
        generation: int,
        make: MakeOptimizer,
        snapshots: Snapshots | None,
    ) -> None:
        self._run, self.number = run, number
        self._generation, self._snapshots = generation, snapshots
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        sockets.keep(run.launch, first=number == 0)
        if number == 0:
            # Readers of this machine find the sockets by it.
            (folder_of(run) / LAUNCH).write_text(f"{run.launch}\n", encoding="ascii")
        self._here = settings.here
        #: Where workers of other machines come in.
        self._door: Door | None = None
        if settings.listen is not None:
            self._door = Door(settings, settings.listen, run, number, self._context)
        #: Whether the first worker has said that it has done its part.
        self._over = False
        self._data = self._bind(f"shard-{number}")
        self._control: zmq.Socket[bytes] | None = self._bind("control") if number == 0 else None
        self._up: zmq.Socket[bytes] | None = None
        self._beaten = 0.0
        #: The generation of the coordinator that knows this shard.
        self._above = -1
        self._refused = 0
        #: What could not be sent yet, by connection.
        self._waiting: dict[bytes, deque[tuple[m.Message, Any]]] = {}
        kind = Shard if settings.mode == "sync" else FreeShard
        self.shard = kind(
            number,
            snapshots,
            make,
            workers=run.world,
            send=lambda who, message, payload: self._send(self._data, who, message, payload),
            ready=self._ready,
            notice=self._notice,
            share_memory=settings.payload == "memory"
            or (settings.payload == "auto" and not settings.compresses and available()),
            compressor=_made(run, settings.compressor),
            down=_made(run, settings.down),
        )
        self.readers = Readers(
            self.shard, lambda who, message, payload: self._send(self._data, who, message, payload)
        )
        self.shard.moved = self.readers.moved
        self.shard.recover()
        self.coordinator: Coordinator | None = None
        if self._control is None:
            endpoint = sockets.endpoint(run.launch, "control")
            self._up = sockets.dealer(self._context, endpoint, _LARGEST)
            self._poller.register(self._up, zmq.POLLIN)
            return
        control = self._control
        stall = run.train.stall
        self.coordinator = Coordinator(
            run.world,
            [sockets.endpoint(run.launch, f"shard-{each}") for each in range(settings.servers)],
            Limits(
                beat=BEAT,
                silence=settings.silence or None,
                stall=math.inf if stall == "never" else stall,
            ),
            generation=generation,
            send=lambda who, message, payload: self._send(control, who, message, payload),
            decided=self._decided,
            keep=self.shard.keep,
            notice=self._notice,
            leases=settings.leases(),
            applied=self.shard.is_applied,
            here=settings.here,
            # One that is started again does not wait: whoever joined may not be there any more.
            waits=self._door is not None and not self._door.keys.again,
        )
        if self.shard.began:
            owners = self.shard.owners or tuple(range(settings.here))
            sure = self.shard.next > self.shard.first
            self.coordinator.restore(self.shard.next, owners, time.monotonic(), sure=sure)
            if isinstance(self.shard, FreeShard) and self.coordinator.leases is not None:
                self.coordinator.leases.restore(*self.shard.applied())
        self.shard.say_again()

    def run(self) -> None:
        """Answer, for ever."""
        while True:
            self._turn(BEAT)
            self._beat()

    def _turn(self, seconds: float) -> None:
        for socket, _ in self._poller.poll(1 if self._waiting else int(seconds * 1000)):
            for _ in range(64):
                if not self._take(socket):
                    break
        self._run.pulse.moves += 1
        self._flush()

    def farewell(self) -> None:
        """The workers of this machine are done: let those of others take the last parameters, and tell them."""
        if self._door is None:
            return
        deadline = time.monotonic() + _FAREWELL
        while time.monotonic() < deadline and self._others():
            self._turn(0.05)
        if self.coordinator is None:
            return
        text = "the run was ended, or begins again" if not self._over else ""
        deadline = time.monotonic() + _HEARD
        while True:
            self.coordinator.tell_over(text)
            # Until they leave, what they say has to be read: closing a connection with unread bytes resets it, and then
            # the system of the other side throws away our last word if it has not been read there.
            again = min(deadline, time.monotonic() + BEAT)
            while self._others() and time.monotonic() < again:
                self._turn(0.05)
            if not self._others() or time.monotonic() >= deadline:
                return

    def _others(self) -> bool:
        return any(session.worker >= self._here for session in self.shard.sessions.values())

    def close(self, *, over: bool) -> None:
        """Close the sockets; where the run is over, leave nothing behind."""
        for socket in (self._data, self._control, self._up):
            if socket is not None:
                socket.close(0 if self._door is None else _LINGER)
        if self._door is not None:
            self._door.close(over=self._over)
        self._context.term()
        if not over:
            return
        _leave(self._run, self.number, self._snapshots)

    # -- what comes ---------------------------------------------------------------------------------------------------

    def _take(self, socket: zmq.Socket[bytes]) -> bool:
        """Answer one message; False where there is none."""
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        if socket is self._up:
            self._from_coordinator(frames)
            return True
        who = frames[0].bytes
        try:
            if not 2 <= len(frames) <= 3:
                raise BadFrame("header", f"a message of {len(frames)} frames")
            message = m.unpack(frames[1].buffer)
            payload = frames[2].buffer if len(frames) == 3 else None
            joined = None if self._door is None else self._door.worker_of(frames[0])
            if joined is None:
                self._answer(socket, who, message, payload)
            elif self._let_in(socket, who, message, joined):
                self._answer(socket, who, message, payload, joined)
        except BadFrame as error:
            self._refused += 1
            if self._refused & (self._refused - 1) == 0:
                # A peer that goes on and on does not fill the log.
                _log.warning("%s: message %d was refused: %s", self._run.process, self._refused, error)
            self._send(socket, who, m.Reject(code=error.code, text=error.reason), None)
        return True

    def _let_in(self, socket: zmq.Socket[bytes], who: bytes, message: m.Message, joined: int) -> bool:
        """Whether a message that came with a worker's key is that worker's."""
        if isinstance(message, m.Hello):
            if joined == READER:
                if message.role == "reader":
                    return True
            elif message.role in ("worker", "pulse") and message.number == joined:
                return True
            owner = "a reader" if joined == READER else f"worker {joined}"
            text = f"the keys are those of {owner}, and {message.role} {message.number} says hello with them"
            self._send(socket, who, m.Reject(code="key", text=text), None)
            return False
        if socket is self._control and self.coordinator is not None:
            peer = self.coordinator.peers.get(who)
            return peer is None or peer.number == joined
        session = self.shard.sessions.get(who)
        return session is None or session.worker == joined

    def _answer(
        self,
        socket: zmq.Socket[bytes],
        who: bytes,
        message: m.Message,
        payload: memoryview | None,
        joined: int | None = None,
    ) -> None:
        at_control = socket is self._control
        if isinstance(message, m.Hello):
            run, endpoints = self._run.launch, None
            if joined is not None and self._door is not None:
                run, endpoints = self._door.keys.run, self._door.endpoints()
                if endpoints is None:
                    return  # Another server is not there yet. It says hello again.
            if message.run != run or message.release != RELEASE:
                text = "it is of another start of the run, or of another release"
                self._send(socket, who, m.Reject(code="run", text=text), None)
            elif message.role == "reader":
                self._meet_reader(socket, who, endpoints)
            elif at_control:
                assert self.coordinator is not None
                self.coordinator.hello(who, message, time.monotonic(), endpoints)
            else:
                self.shard.hello(who, message)
                self._send(socket, who, self._welcome(), None)
                self.shard.welcome(who)
            return
        known = self.coordinator.peers if at_control and self.coordinator is not None else self.shard.sessions
        if not at_control and who in self.readers:
            self.readers.handle(who, message)
        elif who not in known:
            # It spoke to whoever was here before.
            self._send(socket, who, m.Nack(code="hello", text="say hello first"), None)
        elif at_control:
            assert self.coordinator is not None
            self.coordinator.handle(who, message, payload, time.monotonic())
        else:
            if isinstance(message, m.Leave) and self.shard.sessions[who].worker == 0:
                self._over = True
            try:
                self.shard.handle(who, message, payload)
            except (RuntimeError, ValueError, TypeError) as error:
                if isinstance(error, BadFrame):
                    raise
                raise fail(
                    TrainingError, "ZPS008", f"{type(error).__name__}: {error}", owner=OWNER
                ) from error

    def _meet_reader(self, socket: zmq.Socket[bytes], who: bytes, endpoints: tuple[str, ...] | None) -> None:
        """The coordinator tells it where the shards are, and a shard answers it from then on."""
        if socket is self._control and self.coordinator is not None:
            servers = self.coordinator.endpoints if endpoints is None else endpoints
            welcome = m.Welcome(generation=self._generation, beat=BEAT, servers=servers)
            self._send(socket, who, welcome, None)
            return
        self.readers.hello(who)
        self._send(socket, who, self._welcome(), None)

    def _welcome(self) -> m.Welcome:
        return m.Welcome(
            generation=self._generation, beat=BEAT, round=self.shard.next, began=self.shard.began
        )

    # -- between shards -----------------------------------------------------------------------------------------------

    def _ready(self, round: int, told: Told, number: int) -> None:
        """The shard has all of a round."""
        durable = self.shard.safe
        if self.coordinator is not None:
            self.coordinator.ready(self.number, round, told, durable, number)
            self.shard.forget(self.coordinator.least)
        elif self._up is not None:
            ready = m.Ready(
                round=round,
                square=told.square,
                finite=told.finite,
                shard=self.number,
                durable=durable,
                number=number,
            )
            self._send(self._up, None, ready, None)

    def _decided(self, decision: Decision, epoch: int, owners: tuple[int, ...]) -> None:
        self.shard.commit(decision, epoch, owners)

    def _from_coordinator(self, frames: list[Any]) -> None:
        message = m.unpack(frames[0].buffer)
        if isinstance(message, m.Commit):
            if message.generation != self._above:
                return
            self.shard.forget(message.least)
            decision = Decision(message.round, message.norm, message.finite, message.number)
            self._decided(decision, message.epoch, message.owners)
        elif isinstance(message, m.Keep):
            self.shard.keep(message.number)
        elif isinstance(message, m.Nack):
            assert self._up is not None
            self._send(self._up, None, self._hello(), None)
        elif isinstance(message, m.Welcome):
            self._above = message.generation
            self.shard.say_again()

    def _hello(self) -> m.Hello:
        return m.Hello(
            run=self._run.launch,
            role="shard",
            number=self.number,
            incarnation=self._generation,
            release=RELEASE,
            host="",
        )

    def _beat(self) -> None:
        now = time.monotonic()
        if self.coordinator is not None:
            self.coordinator.tick(now)
        if now - self._beaten < BEAT:
            return
        self._beaten = now
        if self.coordinator is not None:
            self.coordinator.stands(self.number, self.shard.next)
        elif self._up is not None:
            self._send(self._up, None, m.Ping(phase="serving", step=self.shard.next, moves=0), None)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _bind(self, name: str) -> zmq.Socket[bytes]:
        made = sockets.router(self._context, sockets.endpoint(self._run.launch, name), _LARGEST)
        if self._door is not None:
            self._door.bind(made, name)
        self._poller.register(made, zmq.POLLIN)
        return made

    def _send(self, socket: zmq.Socket[bytes], who: bytes | None, message: m.Message, payload: Any) -> None:
        """Send, unless the other side is gone: then it has to say hello again. What is large waits here while the other
        side reads."""
        if who is None or not isinstance(message, _LARGE) or not self._queued(who, message, payload):
            self._try(socket, who, message, payload)

    def _queued(self, who: bytes, message: m.Message, payload: Any) -> bool:
        """Whether it waits for what was to be sent before it. Of parameters and of state only the newest wait, so that
        nobody makes them many by asking, and not reading."""
        row = self._waiting.get(who)
        if row is None:
            return False
        if isinstance(message, m.Release):
            row = deque(each for each in row if isinstance(each[0], m.State))
        elif isinstance(message, m.State) and message.start == 0:
            row = deque(each for each in row if not isinstance(each[0], m.State))
        row.append((message, payload))
        self._waiting[who] = row
        return True

    def _flush(self) -> None:
        """Send what waits, as far as it goes."""
        for who in list(self._waiting):
            row = self._waiting.pop(who)
            while row and who not in self._waiting:
                self._try(self._data, who, *row.popleft())
            if who in self._waiting:
                self._waiting[who].extend(row)

    def _try(self, socket: zmq.Socket[bytes], who: bytes | None, message: m.Message, payload: Any) -> None:
        frames: list[Any] = [] if who is None else [who]
        frames.append(m.pack(message))
        try:
            if payload is None or len(payload) == 0:
                socket.send_multipart(frames, zmq.NOBLOCK)
            else:
                socket.send_multipart(frames, zmq.NOBLOCK | zmq.SNDMORE)
                socket.send(payload, zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            _log.debug("%s: a %s did not go out: %s", self._run.process, type(message).__name__, error)
            if who is None or socket is not self._data:
                return
            if error.errno == zmq.EHOSTUNREACH:
                # That connection does not come back: whoever had it says hello on another one.
                self.shard.sessions.pop(who, None)
                self.readers.leave(who)
            elif isinstance(message, _LARGE):
                self._waiting[who] = deque([(message, payload)])

    def _notice(self, text: str) -> None:
        self._run.notice("communicator zmq-ps", text, level="warning")
