"""A worker's connections: to the coordinator and to each shard, made again where they were cut.

All of it is one thread's, that of the training. Whoever waits here answers what comes meanwhile: a server that was
started again wants to know who this is, and to have again what it lost.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import zmq

from nlpkernel.errors import NlpkernelError, TrainingError, fail
from nlpkernel.supervise.heartbeat import Pulse
from nlpkernel_zmq import sockets
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.memory import host
from nlpkernel_zmq.release import RELEASE
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.worker.pulse import Beats
from nlpkernel_zmq.worker.way import Way

_log = logging.getLogger("nlpkernel.zmq")
#: Bytes of a payload beside pieces of a gradient.
_LARGEST = 64 << 20
#: What to do where a server came back and what it lost is lost.
RESUME = "`nlpkernel resume` goes on from the newest version"
#: Seconds in which a server takes half of what its queue holds, or is thought to be gone.
_PATIENCE = 5.0


@attrs.define
class Server:
    """A shard as this worker knows it. generation: that of the server which has said welcome last; 0: none has. next:
    the round that it applies next. durable: rounds before this one need not be sent again; -1: it cannot tell."""

    number: int
    socket: zmq.Socket[bytes]
    generation: int = 0
    began: bool = False
    begun: int = -1
    next: int = 0
    durable: int = 0
    asked: float = 0.0
    release: m.Release | None = None
    #: Whether it came back to before what it could not keep safe.
    unsafe: bool = False
    #: For whom it waits, as it said last.
    missing: tuple[str, ...] = ()
    #: How often it has said welcome to a connection that it did not know, the update of which all was sent again since,
    #: and how often it has said that it has no parameters since all of them had.
    greeted: int = 0
    again: int = -1
    doubts: int = 0
    #: Pieces of the parameters after the round of `release`.
    pieces: set[int] = attrs.field(factory=set)
    state: bytearray | None = None
    state_whole: bool = False


class Link:
    """See the module. launch: the word of this start of the run. way: where the coordinator is, if not on this machine.
    `back` is told of a server that has to be sent again what it lost, `went_on` of one that made an update, `beaten` at
    each beat while this worker waits; `took` gets a piece of parameters: (shard, message, bytes), and says whether it
    was of use."""

    def __init__(self, launch: str, rank: int, timeout: float, pulse: Pulse, way: Way | None = None) -> None:
        self._launch, self._rank, self._timeout, self._pulse = launch, rank, timeout, pulse
        self._way = way or Way(sockets.endpoint(launch, "control"))
        self.incarnation = secrets.randbits(63)
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._control = self._connect(self._way.control)
        self._joined = False
        #: Whether the run went on already when this process came into it.
        self.late = False
        self._took_part = False
        #: The round after which workers meet now: -1 before the first.
        self.at = -1
        #: Shares of others that this worker is to do, by round.
        self.leased: dict[int, list[int]] = {}
        self._missing: tuple[str, ...] = ()
        self.claimed: int | None = None
        self.held: m.Held | None = None
        self._claiming: m.Claim | None = None
        self._holding: m.Hold | None = None
        self._enlisting = False
        self._control_asked = 0.0
        self.servers: list[Server] = []
        self.members: tuple[int, ...] = ()
        self._arena: Mapping[str, Any] | None = None
        self._said: list[tuple[str, bytes]] = []
        self._met: dict[str, tuple[tuple[int, ...], list[bytes]]] = {}
        self._meetings = 0
        self._beat = 0.5
        self.beats: Beats | None = None
        self.back: Callable[[Server], None] = lambda server: None
        self.went_on: Callable[[Server], None] = lambda server: None
        self.beaten: Callable[[], None] = lambda: None
        self.took: Callable[[int, m.Params, memoryview], bool] = lambda shard, params, payload: True

    # -- beginning and end --------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Be known to the coordinator, and to all shards. Raise TrainingError (ZPS001) where they do not answer."""
        self.wait(lambda: self._joined, "the coordinator to answer")
        self.beats = Beats(self._launch, self._rank, self.incarnation, self._pulse, self._beat, self._way)

    def call_shards(self, arena: Mapping[str, Any] | None) -> None:
        """Say hello to all shards, with the memory that is shared."""
        self._arena = arena
        for server in self.servers:
            self._say_hello(server)
        self.wait(lambda: all(server.generation for server in self.servers), "the servers to answer")

    @property
    def joined(self) -> bool:
        """Whether this worker is on another machine than the servers."""
        return self._way.ticket is not None

    def close(self, *, early: bool = False) -> None:
        """Say that this worker has done its part, or goes before the end, and close."""
        if self.beats is not None:
            self.beats.close()
        for socket in (self._control, *(server.socket for server in self.servers)):
            try:
                socket.send(m.pack(m.Leave(early=early)), zmq.NOBLOCK)
            except zmq.ZMQError as error:
                _log.debug("a farewell did not go out: %s", error)
            socket.close(200)
        self._context.term()

    # -- meetings -----------------------------------------------------------------------------------------------------

    def meet(self, word: bytes) -> list[bytes]:
        """The words of all workers that take part, in their order; `members` says which. Asked of all at the same
        point."""
        self._meetings += 1
        key = f"{self.at}:{self._meetings}"
        # Another worker may not have heard how the last one ended, when the coordinator is started again.
        # And the first ones of the run are needed again by whoever comes into it later.
        first = [each for each in self._said[:-1] if each[0].startswith("-1:")]
        self._said = [*first, *self._said[-1:], (key, word)]
        self._say(key, word)
        self.wait(lambda: key in self._met, "the other workers")
        self.members, found = self._met.pop(key)
        self._met.clear()
        return found

    def after(self, round: int) -> None:
        """A round is over: the meetings that follow are those after it."""
        self.at, self._meetings, self._enlisting = round, 0, False
        self.take_part()

    def take_part(self) -> None:
        """This worker is in the run from now on."""
        self._took_part = True
        if self.beats is not None:
            self.beats.took_part = True

    # -- windows ------------------------------------------------------------------------------------------------------

    def claim(self, end: int) -> int:
        """The window before `end` that this worker is to compute; -1: none is left. Waits for one."""
        self.claimed = None
        self._claiming = m.Claim(end=end)
        self._offer(self._control, self._claiming)
        self.wait(lambda: self.claimed is not None, "a window")
        self._claiming = None
        assert self.claimed is not None
        return self.claimed

    def hold(self) -> None:
        """Have no window given out until `resume`."""
        self.held = None
        self._holding = m.Hold(hold=True)
        self._offer(self._control, self._holding)

    def quiet(self) -> m.Held:
        """Wait until nothing is under way."""
        self.wait(lambda: self.held is not None, "the windows under way")
        assert self.held is not None
        return self.held

    def resume(self, begin: int = -1) -> None:
        """Have windows given out again, from `begin` on where that is said."""
        # A coordinator that is started again holds nothing back.
        self._holding = None
        self.tell(m.Hold(hold=False, begin=begin))

    def enlist(self) -> None:
        """Be ready for a share of the next round."""
        self._enlisting = True
        self.tell(m.Enlist())

    def tell(self, message: m.Message) -> None:
        """Send to the coordinator."""
        self._send(self._control, message, None)

    def _say(self, key: str, word: bytes) -> None:
        if self._joined:
            self._joined = self._send(self._control, m.Meet(key=key), word)

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, server: Server, message: m.Message, payload: Any = None) -> None:
        """Send to a shard. What does not go out, and all after it, is sent again once it has said welcome again."""
        if server.generation and not self._send(server.socket, message, payload):
            server.generation = 0

    def _send(self, socket: zmq.Socket[bytes], message: m.Message, payload: Any) -> bool:
        """Whether it went out."""
        frames = [m.pack(message)]
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                if payload is None or len(payload) == 0:
                    socket.send_multipart(frames, zmq.NOBLOCK)
                else:
                    socket.send_multipart(frames, zmq.NOBLOCK | zmq.SNDMORE)
                    socket.send(payload, zmq.NOBLOCK, copy=False)
                return True
            except zmq.Again:
                # Too much is under way, or there is no connection; ZeroMQ does not tell which.
                self._pulse.moves += 1
                if not socket.poll(int(self._beat * 1000), zmq.POLLOUT) and time.monotonic() > deadline:
                    return False

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Answer what comes until something holds. Raise TrainingError (ZPS001) where it takes too long."""
        if until():
            return
        deadline = time.monotonic() + self._timeout
        while not until():
            ready = self._poller.poll(int(self._beat * 1000))
            for socket, _ in ready:
                while self._take(socket):
                    pass
            self._pulse.moves += 1
            now = time.monotonic()
            self._ask_again(now)
            if now > deadline:
                raise self._silent(what)

    def _ask_again(self, now: float) -> None:
        """A server that has nothing to say may be another one, which does not know us."""
        if now - self._control_asked >= self._beat:
            self._control_asked = now
            self.beaten()
            self._offer(
                self._control, m.Ping(phase="waiting", step=0, moves=0) if self._joined else self._hello()
            )
        for server in self.servers:
            if now - server.asked >= self._beat:
                server.asked = now
                self._offer(
                    server.socket,
                    m.Ping(phase="waiting", step=0, moves=0) if server.generation else self._hello(),
                )

    def _offer(self, socket: zmq.Socket[bytes], message: m.Message) -> None:
        """Send, if that can be done now."""
        try:
            socket.send(m.pack(message), zmq.NOBLOCK)
        except zmq.Again:
            return

    def _take(self, socket: zmq.Socket[bytes]) -> bool:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        try:
            message = m.unpack(frames[0].buffer)
            payload = frames[1].buffer if len(frames) > 1 else None
            if socket is self._control:
                self._from_coordinator(message, payload)
            else:
                server = next(each for each in self.servers if each.socket is socket)
                self._from_shard(server, message, payload)
        except BadFrame as error:
            raise fail(
                TrainingError, "ZPS005", f"a server sent what it may not: {error}", owner=OWNER
            ) from error
        return True

    # -- what comes ---------------------------------------------------------------------------------------------------

    def _from_coordinator(self, message: m.Message, payload: memoryview | None) -> None:
        if isinstance(message, m.Welcome):
            self._joined = True
            self._beat = message.beat
            if not self.servers:
                self.servers = [
                    Server(number, self._connect(where)) for number, where in enumerate(message.servers)
                ]
            if not self._took_part:
                self.late = message.began
            for key, word in self._said:
                self._say(key, word)
            for message_ in (self._claiming, self._holding, m.Enlist() if self._enlisting else None):
                if message_ is not None:
                    self._offer(self._control, message_)
            if self.claimed is not None and self.claimed >= 0:
                self._offer(self._control, m.Claim(held=self.claimed))
        elif isinstance(message, m.Met):
            self._met[message.key] = message.members, _cut(payload, message.sizes)
        elif isinstance(message, m.Lease):
            shares = self.leased.setdefault(message.round, [])
            if message.share not in shares:
                shares.append(message.share)
        elif isinstance(message, m.Pong):
            self._missing = message.missing
        elif isinstance(message, m.Claimed):
            self.claimed = message.window
        elif isinstance(message, m.Held):
            self.held = message
        elif isinstance(message, m.Nack):
            self._joined = False
            self._offer(self._control, self._hello())
        elif isinstance(message, m.Reject):
            raise self._refused(message)
        elif isinstance(message, m.Abort):
            hint = "repeat this command once it goes on"
            raise fail(TrainingError, "ZPS011", message.text, owner=OWNER, hint=hint)
        elif isinstance(message, m.Leave):
            _log.info("the run is over where it was started")
            raise SystemExit(0)

    def _from_shard(self, server: Server, message: m.Message, payload: memoryview | None) -> None:
        if isinstance(message, m.Release):
            self._released(server, message)
        elif isinstance(message, m.Params):
            assert payload is not None
            # A piece of another round is from before a connection was cut.
            if server.release is not None and message.round == server.release.round:
                if self.took(server.number, message, payload):
                    server.pieces.add(message.start)
                elif server.generation:
                    # It adds to what is not here: then all of it comes.
                    server.generation = 0
                    self._say_hello(server)
        elif isinstance(message, m.Welcome):
            came_back = server.generation != message.generation
            server.unsafe = came_back and server.durable < 0 and message.round < server.next
            server.generation = message.generation
            server.began, server.next = message.began, max(message.round, 0)
            if came_back:
                server.state = None
                server.greeted += 1
            server.again = -1
            self.back(server)
        elif isinstance(message, m.Nack) and message.code == "hello":
            # There is one for each message that was under way.
            if server.generation:
                server.generation = 0
                self._say_hello(server)
        elif isinstance(message, m.Nack):
            server.next = message.round
            self.back(server)
        elif isinstance(message, m.Begun):
            server.begun, server.began, server.next = message.round, True, message.round
            server.durable, server.unsafe = message.round, False
            server.release = None
        elif isinstance(message, m.Pong):
            server.missing = message.missing
        elif isinstance(message, m.State):
            self._state(server, message, payload)
        elif isinstance(message, m.Reject):
            raise self._refused(message)

    def _released(self, server: Server, release: m.Release) -> None:
        if release.number < server.next - 1 and not release.placed and release.arena is not None:
            return  # Of before this shard was started again, or said twice.
        if server.release is None or release.round != server.release.round:
            server.pieces.clear()
        server.release = release
        server.next = release.number + 1
        server.durable = release.durable
        self.went_on(server)

    def _state(self, server: Server, state: m.State, payload: memoryview | None) -> None:
        if state.start == 0:
            server.state = bytearray()
        if server.state is None or state.start != len(server.state) or payload is None:
            return
        server.state += payload
        server.state_whole = len(server.state) == state.total

    def _refused(self, reject: m.Reject) -> NlpkernelError:
        if reject.code == "lost":
            return fail(TrainingError, "ZPS003", reject.text, owner=OWNER, hint=RESUME)
        code = {"fenced": "ZPS004", "key": "ZPS012"}.get(reject.code, "ZPS005")
        return fail(TrainingError, code, f"a server refuses this worker: {reject.text}", owner=OWNER)

    def _silent(self, what: str) -> NlpkernelError:
        silent = [f"server {each.number}" for each in self.servers if not each.generation]
        if not self._joined and not self._missing:
            silent = sorted({"server 0", *silent})
        told = f"; no answer from {', '.join(silent)}" if silent else ""
        known = {*self._missing, *(name for each in self.servers for name in each.missing)}
        absent = sorted(known - {f"worker {self._rank}", *silent})
        told += f"; {', '.join(absent)} did not come" if absent else ""
        return fail(
            TrainingError,
            "ZPS001",
            f"worker {self._rank} waited {self._timeout:g} s for {what}{told}",
            owner=OWNER,
            hint="logs/server-N.log in the run's folder says what the servers did",
        )

    def _hello(self) -> m.Hello:
        return m.Hello(
            run=self._launch,
            role="worker",
            number=self._rank,
            incarnation=self.incarnation,
            release=RELEASE,
            host=host(),
            arena=None if self._arena is None else dict(self._arena),
            took_part=self._took_part,
            late=self.late,
        )

    def _say_hello(self, server: Server) -> None:
        server.asked = time.monotonic()
        self._offer(server.socket, self._hello())

    def _connect(self, where: str) -> zmq.Socket[bytes]:
        made = self._way.dealer(self._context, where, _LARGEST)
        self._poller.register(made, zmq.POLLIN)
        return made


def _cut(payload: memoryview | None, sizes: Sequence[int]) -> list[bytes]:
    """A row of bytes in pieces of these sizes."""
    data = b"" if payload is None else bytes(payload)
    if sum(sizes) != len(data):
        raise BadFrame("field", f"{len(data)} bytes for words of {sum(sizes)}")
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return pieces
