"""The weights of a run while it trains, for evaluation or serving: read from its servers, without a part in the run.

from nlpkernel_zmq.live import LiveWeights

with LiveWeights.of("runs/NAME") as live:
    weights = live.newest()
    model.load_state_dict(weights.tensors, strict=False)
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import msgpack  # type: ignore[import-untyped, unused-ignore]
import torch
import zmq
from torch import Tensor

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_zmq import sockets
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.regions import views_in
from nlpkernel_zmq.release import RELEASE
from nlpkernel_zmq.security.folder import LAUNCH
from nlpkernel_zmq.security.keys import Ticket
from nlpkernel_zmq.security.knocking import check, knock
from nlpkernel_zmq.server.model import Schema
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import dtype_of, view_of
from nlpkernel_zmq.worker.way import Way

#: Bytes of a payload: pieces are no larger.
_LARGEST = 64 << 20
#: Seconds after which hello is said again, and in which a run that trains makes another step.
_AGAIN, _STEP = 0.5, 2.0


@attrs.frozen
class Weights:
    """What is trained, by name, as it was after `step` windows of the plan, which made `updates` updates."""

    step: int
    updates: int
    tensors: dict[str, Tensor]


@attrs.define
class _Shard:
    """One as the reader knows it. asked: what it is to answer, again where it comes back. step: where it is, as it said
    last; past: what was asked for is no more."""

    socket: zmq.Socket[bytes]
    known: bool = False
    said: float = 0.0
    asked: m.Fetch | None = None
    data: bytearray = attrs.field(factory=bytearray)
    whole: bool = False
    past: bool = False
    step: int = -1
    updates: int = -1


class LiveWeights:
    """A reader of a run that goes on. timeout: seconds for which it waits, for servers and for a step. Raise UsageError
    (ZPS014) where there is nothing to read; of a run on another machine as `nlpkernel join` does."""

    def __init__(self, launch: str, way: Way, timeout: float = 600.0) -> None:
        self._launch, self._way, self._timeout = launch, way, timeout
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._incarnation = secrets.randbits(63)
        self._shards: list[_Shard] = []
        self._schema: Schema | None = None
        self._endpoints: tuple[str, ...] = ()
        try:
            self._find()
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, run: str | Path, *, timeout: float = 600.0) -> LiveWeights:
        """That of a run of this user on this machine, by its folder."""
        path = Path(run) / ".servers" / LAUNCH
        try:
            launch = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            message = f"no servers of {str(run)!r} run on this machine"
            hint = "a run that is over has versions: nlpkernel.open_model"
            raise fail(UsageError, "ZPS014", message, owner=OWNER, hint=hint) from None
        return cls(launch, Way(sockets.endpoint(launch, "control")), timeout)

    @classmethod
    def at_endpoint(cls, endpoint: str, keys: str | Path, *, timeout: float = 600.0) -> LiveWeights:
        """That of a run on another machine, where its servers listen, with a copy of `.servers/keys/reader`."""
        check(endpoint)
        ticket = Ticket.read(Path(keys))
        knock(endpoint, ticket)
        return cls(ticket.run, Way(endpoint, ticket), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for shard in self._shards:
            shard.socket.close(0)
        self._shards = []
        self._context.term()

    # -- reading --------------------------------------------------------------------------------------------------

    def newest(self) -> Weights:
        """The parameters as they are about now. Waits until the run has begun."""
        deadline = time.monotonic() + self._timeout
        lead = 0
        while True:
            step = self._where(deadline) + lead
            # A run that evaluates, or is over, makes no step for a while: then what there is, is the newest.
            found = self._read(step, min(deadline, time.monotonic() + _STEP) if lead else deadline)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise self._silent(f"the parameters after step {step}")
            ahead = any(shard.past for shard in self._shards)
            lead = min(2 * lead + 1, 64) if ahead else 0

    def after(self, step: int) -> Weights:
        """The parameters after so many steps; waits until there are so many. Raise UsageError where there have been
        more."""
        found = self._read(step, time.monotonic() + self._timeout)
        if found is not None:
            return found
        now = max(shard.step for shard in self._shards)
        if any(shard.past for shard in self._shards):
            raise fail(
                UsageError,
                "ZPS014",
                f"the run is at step {now}, beyond step {step}",
                owner=OWNER,
                hint="read the newest, or a saved version",
            )
        raise self._silent(f"the parameters after step {step}")

    def _where(self, deadline: float) -> int:
        """The furthest step of any shard."""
        self._ask(m.Fetch(what="schema", round=-1))
        if not self._answered(deadline):
            raise self._silent("the run to begin")
        schemas = {bytes(shard.data) for shard in self._shards}
        try:
            self._schema = Schema.of(msgpack.unpackb(schemas.pop()))
        except (ValueError, msgpack.UnpackException) as error:
            raise self._wrong(error) from error
        return max(shard.step for shard in self._shards)

    def _read(self, step: int, deadline: float) -> Weights | None:
        """The parameters of all shards after the same step; None where one is beyond it, or not there in time."""
        if self._schema is None:
            self._where(deadline)
        assert self._schema is not None
        self._ask(m.Fetch(what="parameters", round=-1, step=step))
        if not self._answered(deadline):
            return None
        schema, spaces = self._schema, self._schema.spaces()
        kinds = [dtype_of(each.dtype) for each in schema.parameters]
        flat = [
            torch.zeros(each.elements, dtype=kind)
            for each, kind in zip(schema.parameters, kinds, strict=True)
        ]
        for shard, space in zip(self._shards, spaces, strict=True):
            if len(shard.data) != space.bytes:
                raise self._wrong(f"{len(shard.data)} bytes of parameters, and there are {space.bytes}")
            region = view_of(shard.data, torch.uint8, space.bytes)
            for stretch, view in zip(space.stretches, views_in(region, space, kinds), strict=True):
                flat[stretch.parameter][stretch.start : stretch.stop] = view
        tensors = {
            each.name: tensor.reshape(each.shape)
            for each, tensor in zip(schema.parameters, flat, strict=True)
        }
        return Weights(step, self._shards[0].updates, tensors)

    def _ask(self, fetch: m.Fetch) -> None:
        for shard in self._shards:
            shard.asked, shard.whole, shard.past = fetch, False, False
            shard.data.clear()
            if shard.known:
                self._send(shard, fetch)

    def _answered(self, deadline: float) -> bool:
        """Whether all shards answered what they were asked. Ends once one cannot."""
        while not all(shard.whole for shard in self._shards):
            if any(shard.past for shard in self._shards) or time.monotonic() > deadline:
                return False
            self._turn()
        return True

    # -- connections ----------------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Ask the coordinator where the shards are."""
        control = _Shard(self._way.dealer(self._context, self._way.control, _LARGEST))
        self._shards = [control]
        self._poller.register(control.socket, zmq.POLLIN)
        deadline = time.monotonic() + self._timeout
        while not self._endpoints:
            if time.monotonic() > deadline:
                raise self._silent("the servers to answer")
            self._turn()
        self._poller.unregister(control.socket)
        control.socket.close(0)
        self._shards = [_Shard(self._way.dealer(self._context, where, _LARGEST)) for where in self._endpoints]
        for shard in self._shards:
            self._poller.register(shard.socket, zmq.POLLIN)

    def _turn(self) -> None:
        """Take what comes; say hello to who does not know this reader."""
        now = time.monotonic()
        for shard in self._shards:
            if now - shard.said > _AGAIN:
                shard.said = now
                # One that was started again does not know it, and says so.
                self._send(shard, m.Ping(phase="reading", step=0, moves=0) if shard.known else self._hello())
        ready = {socket for socket, _ in self._poller.poll(int(_AGAIN * 1000))}
        for shard in self._shards:
            while shard.socket in ready and shard.socket.poll(0):
                frames = shard.socket.recv_multipart(copy=False)
                try:
                    message = m.unpack(frames[0].buffer)
                except BadFrame as error:
                    raise self._wrong(error) from error
                self._take(shard, message, frames[1].buffer if len(frames) > 1 else None)

    def _take(self, shard: _Shard, message: m.Message, payload: memoryview | None) -> None:
        if isinstance(message, m.Welcome):
            shard.known = True
            self._endpoints = self._endpoints or message.servers
            if shard.asked is not None and not shard.whole:
                shard.data.clear()
                self._send(shard, shard.asked)
        elif isinstance(message, m.Nack) and message.code == "hello":
            shard.known, shard.said = False, 0.0
        elif isinstance(message, m.Nack):
            shard.step = message.round
            asked = shard.asked
            # It may be the answer to an earlier question.
            shard.past = asked is not None and asked.what == "parameters" and message.round > asked.step
        elif isinstance(message, m.State):
            asked = shard.asked
            if asked is None or message.what != asked.what or payload is None:
                return
            if asked.what == "parameters" and message.step != asked.step:
                return  # Of an earlier question.
            if message.start == 0:
                shard.data.clear()
            if message.start == len(shard.data):
                shard.data += payload
                shard.step, shard.updates = message.step, message.updates
                shard.whole = len(shard.data) == message.total
        elif isinstance(message, m.Reject):
            raise self._wrong(message.text)

    def _hello(self) -> m.Hello:
        return m.Hello(
            run=self._launch,
            role="reader",
            number=0,
            incarnation=self._incarnation,
            release=RELEASE,
            host="",
        )

    def _send(self, shard: _Shard, message: m.Message) -> None:
        try:
            shard.socket.send(m.pack(message), zmq.NOBLOCK)
        except zmq.Again:
            shard.known = False

    def _silent(self, what: str) -> NlpkernelError:
        message = f"waited {self._timeout:g} s for {what}"
        return fail(UsageError, "ZPS014", message, owner=OWNER, hint="is the run still going on?")

    def _wrong(self, error: object) -> NlpkernelError:
        return fail(UsageError, "ZPS014", f"the servers do not let this reader read: {error}", owner=OWNER)
