"""One shard: takes up what workers push, applies rounds as the coordinator decides, and gives the parameters out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import msgpack  # type: ignore[import-untyped, unused-ignore]
import torch
from torch import Tensor

from nlpkernel_zmq import blobs
from nlpkernel_zmq.compress.down import Copy
from nlpkernel_zmq.compress.pieces import Coders
from nlpkernel_zmq.machines.rounds import Rounds, Verdict
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.memory import Memory, host
from nlpkernel_zmq.server.model import MakeOptimizer, Schema, ShardModel
from nlpkernel_zmq.server.snapshots import Snapshots
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import buffer_of, view_of

if TYPE_CHECKING:
    from nlpkernel.hookspecs.compressor import Compressor

#: Bytes that what is trained may take as it travels, and the optimizer's state beside the parameters.
LARGEST_SCHEMA, STATE_FACTOR, STATE_LEAST = 256 << 20, 16, 64 << 20

#: Sends a message, and a payload, to one connection.
Send = Callable[[bytes, m.Message, Any], None]


@attrs.define
class Session:
    """One connection of a worker. memory: what it shares with us."""

    worker: int
    incarnation: int
    memory: Memory | None


class Shard:
    """See the module; rounds of all workers together. `send` answers a connection, `ready` tells the coordinator:
    (round, what was found, number of the update or -1). compressor: what workers may have made pieces smaller with.
    down: what makes parameters smaller on their way back."""

    def __init__(
        self,
        number: int,
        snapshots: Snapshots | None,
        make: MakeOptimizer,
        *,
        workers: int,
        send: Send,
        ready: Callable[[int, Told, int], None],
        notice: Callable[[str], None],
        share_memory: bool,
        compressor: Compressor | None = None,
        down: Compressor | None = None,
    ) -> None:
        self.number, self._workers = number, workers
        self._snapshots, self._make = snapshots, make
        self._send, self._ready, self._notice = send, ready, notice
        self._share_memory = share_memory
        self._compressor, self._way_down = compressor, down
        self._copy: Copy | None = None
        self._up: Coders | None = None
        self.sessions: dict[bytes, Session] = {}
        #: What was said of each round that some shard may have to do again.
        self.told: dict[int, Told] = {}
        #: Updates before this number need not be sent again.
        self.durable = 0
        #: A snapshot is due once all updates before this number are made.
        self._keep = 0
        #: The number of the first update after the beginning.
        self.first = 0
        self.began = False
        self._protected = snapshots is not None
        self._model: ShardModel | None = None
        self._updates = 0
        #: How many windows of the plan have been trained on.
        self.step = 0
        #: Is told that the parameters are others now.
        self.moved: Callable[[], None] = lambda: None
        self._every = 1
        self._incoming: dict[tuple[int, str], bytearray] = {}
        self._schema: Schema | None = None
        self._rounds = Rounds(0)
        self._staged: dict[tuple[int, int], Tensor] = {}
        self._ends: dict[int, m.End] = {}
        self._last: m.Release | None = None
        self._told_now = False
        #: The owners of the round at hand, where they are known.
        self.owners: tuple[int, ...] = ()

    @property
    def next(self) -> int:
        """The number of the update that is made next."""
        return self._rounds.next

    @property
    def safe(self) -> int:
        """Updates before this number it will never ask for again: also where nothing is kept safe, since then it does
        not come back at all."""
        return self.durable if self._protected else self.next

    @property
    def updates(self) -> int:
        """How many updates were made of the windows, those before this start of the run among them."""
        return self._updates

    @property
    def model(self) -> ShardModel:
        """What is trained here. Raise BadFrame before it is known."""
        if self._model is None or not self.began:
            raise BadFrame("field", "the run has not begun here")
        return self._model

    def is_applied(self, round: int) -> bool:
        """Whether a round has been applied here."""
        return round < self.next

    def keep(self, number: int) -> None:
        """Somebody is gone who could send again what led to updates before this number."""
        self._keep = max(self._keep, number)
        if self.began:
            self._write()

    def missing(self) -> tuple[str, ...]:
        """The workers whose shares of the round at hand are not whole, as far as it is known."""
        rounds = self._rounds
        shares = [share for share in range(rounds.of or len(self.owners)) if not rounds.whole(share)]
        known = len(self.owners) == (rounds.of or len(self.owners))
        return tuple(f"worker {self.owners[share] if known else share}" for share in shares)

    def say_again(self) -> None:
        """Tell a coordinator that was started again what it does not know any more."""
        for round, told in sorted(self.told.items()):
            self._ready(round, told, round if round < self.next else -1)

    # -- connections --------------------------------------------------------------------------------------------------

    def hello(self, who: bytes, hello: m.Hello) -> None:
        """A worker has said hello, and is let in. Raise BadFrame where there is no such worker, or not the memory that
        it shares."""
        if hello.role != "worker" or hello.number >= self._workers:
            raise BadFrame("field", f"{hello.role} {hello.number} is none of the {self._workers} workers")
        memory = None
        if hello.arena is not None and hello.host == host():
            memory = Memory.of(hello.arena)
        for other, session in list(self.sessions.items()):
            if session.worker == hello.number and other != who:
                del self.sessions[other]
        self.sessions[who] = Session(hello.number, hello.incarnation, memory)

    def welcome(self, who: bytes) -> None:
        """Say again what it may have missed."""
        if self._last is not None:
            self._give(who, self._last)

    def handle(self, who: bytes, message: m.Message, payload: memoryview | None) -> None:
        """A message of a worker that said hello. Raise BadFrame where it makes no sense."""
        if isinstance(message, m.Push):
            self._push(who, message, payload)
        elif isinstance(message, m.End):
            self._end(who, message)
        elif isinstance(message, m.Put):
            self._put(who, message, payload)
        elif isinstance(message, m.Begin):
            self._begin(who, message)
        elif isinstance(message, m.Fetch):
            self._fetch(who, message)
        elif isinstance(message, m.Ping):
            self._send(who, m.Pong(missing=self.missing()), None)
        elif isinstance(message, m.Leave):
            del self.sessions[who]
        else:
            raise BadFrame("kind", f"{type(message).__name__} is not for a shard")

    # -- beginning ----------------------------------------------------------------------------------------------------

    def _put(self, who: bytes, put: m.Put, payload: memoryview | None) -> None:
        session = self.sessions[who]
        self._is_first(session)
        key = (session.worker, put.what)
        if put.total > self._room(put.what):
            raise BadFrame("too-big", f"{put.total} bytes of {put.what}")
        held = self._incoming.get(key)
        if held is None or put.start == 0:
            if put.start:
                raise BadFrame("field", f"{put.what} does not begin at its beginning")
            held = self._incoming[key] = bytearray()
        source = self._source(session, put.place, put.start, put.stop, payload)
        if len(held) != put.start or put.stop > put.total:
            raise BadFrame("field", f"{put.what} from {put.start} to {put.stop} after {len(held)} bytes")
        held += buffer_of(source)

    def _is_first(self, session: Session) -> None:
        if session.worker:
            raise BadFrame("field", f"worker {session.worker} begins the run, and only worker 0 does")

    def _room(self, what: str) -> int:
        if what == "schema":
            return LARGEST_SCHEMA
        if self._schema is None:
            raise BadFrame("field", f"{what} before the schema")
        space = self._schema.spaces()[self.number].bytes
        if what == "parameters" or (what == "reference" and self._way_down is not None):
            return space
        if what == "optimizer":
            return STATE_FACTOR * space + STATE_LEAST
        raise BadFrame("field", f"{what!r} is nothing that a shard takes")

    def _begin(self, who: bytes, begin: m.Begin) -> None:
        worker = self.sessions[who].worker
        self._is_first(self.sessions[who])
        if begin.what == "schema":
            self._schema = self._read_schema(worker)
            return
        if self._schema is None:
            raise BadFrame("field", "a run begins with what is trained")
        spaces = self._schema.spaces()
        values = self._incoming.pop((worker, "parameters"), bytearray())
        if self.number < len(spaces) and len(values) != spaces[self.number].bytes:
            # No memory is taken for what did not come.
            raise BadFrame(
                "field", f"{len(values)} bytes of parameters, and there are {spaces[self.number].bytes}"
            )
        model = self._built(self._schema)
        with torch.no_grad():
            if values:
                model.memory.tensor.copy_(view_of(values, torch.uint8, len(values)))
        if self._copy is not None:
            known = self._incoming.pop((worker, "reference"), values)
            if len(known) != model.space.bytes:
                raise BadFrame("field", f"{len(known)} bytes of a reference of {model.space.bytes}")
            if known:
                self._copy.values.copy_(view_of(known, torch.uint8, len(known)))
        state = self._incoming.pop((worker, "optimizer"), None)
        facts, tensors = blobs.unpack(state) if state else ({}, {})
        model.take_state(tensors, facts.get("plain", {}))
        if "groups" in facts:
            model.take_groups(facts["groups"])
        self._updates, self._every, self.step = begin.updates, begin.every, begin.step
        self._protected = self._snapshots is not None and self._every > 0
        self.told.clear()
        self.durable = self.first = begin.round
        self._last = None
        self._start(begin.round, {"step": begin.step})
        self._write(always=True)
        self.moved()
        self._send(who, m.Begun(round=begin.round, shard=self.number), None)

    def _read_schema(self, worker: int) -> Schema:
        data = self._incoming.pop((worker, "schema"), None)
        if data is None:
            raise BadFrame("field", "there is no schema")
        try:
            plain = msgpack.unpackb(data)
        except (ValueError, msgpack.UnpackException) as error:
            raise BadFrame("header", f"the schema cannot be read: {error}") from error
        if not isinstance(plain, dict):
            raise BadFrame("field", "the schema is no map")
        return Schema.of(plain)

    def _built(self, schema: Schema) -> ShardModel:
        if self._model is None or self._model.schema != schema:
            if not 0 <= self.number < schema.shards:
                raise BadFrame("field", f"{schema.shards} shards, and this is number {self.number}")
            size = schema.spaces()[self.number].bytes
            memory = Memory.shared(size) if self._share_memory else Memory.private(size)
            self._model = ShardModel(schema, self.number, memory, self._make)
            if self._compressor is not None:
                self._up = Coders(self._compressor, schema.parameters, self._model.space, schema.chunk)
            if self._way_down is not None:
                self._copy = Copy(self._way_down, schema.parameters, self._model.space, schema.chunk)
        return self._model

    def _start(self, number: int, facts: Mapping[str, Any]) -> None:
        """Rounds begin with this number."""
        assert self._model is not None
        self._rounds = Rounds(self._model.space.chunks(self._model.schema.chunk), next=number)
        self._forget_round()
        self.began = True

    # -- a round ------------------------------------------------------------------------------------------------------

    def _push(self, who: bytes, push: m.Push, payload: memoryview | None) -> None:
        chunk = self._piece(push)
        self._check_shares(push.of)
        # Where it lies in the worker's memory it is read there; the worker leaves it alone until the round is over.
        source = self._gradient(who, push, chunk, payload)
        verdict = self._rounds.push(push.round, push.share, push.of, chunk)
        if self._answered(who, verdict, push.round, push.share):
            return
        self._staged[push.share, chunk] = source
        self._add_up(chunk)
        self._ready_if_complete()

    def _gradient(self, who: bytes, push: m.Push, chunk: int, payload: memoryview | None) -> Tensor:
        """The bytes of a piece of a gradient, which may have come encoded."""
        if not push.codec:
            return self._source(self.sessions[who], push.place, push.start, push.stop, payload)
        if self._up is None or push.codec != self._up.name or push.place >= 0:
            raise BadFrame("field", f"a piece that {push.codec[:40]!r} has made is not expected")
        return self._up.decode_bytes(chunk, payload)

    def _check_shares(self, of: int) -> None:
        if of > self._workers:
            raise BadFrame("field", f"{of} shares, of {self._workers} workers")

    def _piece(self, push: m.Push) -> int:
        """The number of a piece. Raise BadFrame where it is none."""
        size, total = self.model.schema.chunk, self.model.space.bytes
        chunk, rest = divmod(push.start, size)
        if rest or push.stop != min(push.start + size, total):
            raise BadFrame("field", f"a push from {push.start} to {push.stop} is no piece")
        return chunk

    def _check_end(self, end: m.End) -> None:
        if end.absent and max(end.absent) >= len(self.model.schema.parameters):
            raise BadFrame("field", "a parameter without gradient that there is not")
        if end.scale <= 0:
            raise BadFrame("field", f"a loss scale of {end.scale}")
        if not all(isinstance(value, (int, float)) for value in end.sums.values()):
            raise BadFrame("field", "a term of the loss that is no number")

    def _end(self, who: bytes, end: m.End) -> None:
        self._check_end(end)
        self._check_shares(end.of)
        steps = {each.step for each in self._ends.values()} | {end.step}
        if end.round == self.next and len(steps) > 1:
            raise BadFrame(
                "field", f"shares of one round are of windows {', '.join(map(str, sorted(steps)))}"
            )
        verdict = self._rounds.end(end.round, end.share, end.of, end.empty)
        if self._answered(who, verdict, end.round, end.share):
            return
        self._ends[end.share] = end
        if end.empty:
            # All of them before the round can be over.
            for chunk in range(self._rounds.chunks):
                self._add_up(chunk)
        self._ready_if_complete()

    def _add_up(self, chunk: int) -> None:
        if self._rounds.full(chunk):
            shares = self._rounds.present(chunk)
            self.model.add(chunk, [self._staged.pop((share, chunk)) for share in shares])

    def _ready_if_complete(self) -> None:
        """Tell the coordinator, once, that all of the round is here."""
        if self._told_now or not self._rounds.complete:
            return
        full = [end for end in self._ends.values() if not end.empty]
        absent = set.intersection(*(set(end.absent) for end in full)) if full else self.model.everything
        told = self.model.tell(absent, full[0].scale if full else 1.0)
        self._told_now = True
        self.told[self.next] = told
        self._ready(self.next, told, -1)

    def commit(self, decision: Decision, epoch: int, owners: tuple[int, ...]) -> None:
        """All shards have all of it. A decision that was known before says nothing."""
        if not self.began or decision.round != self.next or not self._told_now:
            return
        ends = [self._ends[share] for share in sorted(self._ends)]
        if decision.finite:
            self.model.step(decision.norm, ends[0].factor)
            self._updates += 1
        changes = None if self._copy is None else self._copy.advance(self.model.memory.tensor)
        self.step = ends[0].step + 1
        self._rounds.commit()
        self._forget_round()
        # Of the rounds before somebody came or went nobody could do the shares again as they were.
        others = len(ends) != len(owners) or self.owners not in ((), owners)
        self.owners = owners
        self._last = self._release(decision, ends, epoch, owners)
        self._write(always=others)
        self._last = attrs.evolve(self._last, durable=self.durable if self._protected else -1)
        for who in list(self.sessions):
            if changes is None:
                self._give(who, self._last)
            else:
                self._give_changes(who, self._last, changes)
        self.moved()

    def _release(
        self, decision: Decision, ends: list[m.End], epoch: int, owners: tuple[int, ...]
    ) -> m.Release:
        address = self.model.memory.address
        return m.Release(
            round=decision.round,
            number=decision.number,
            step=ends[0].step,
            applied=decision.finite,
            norm=decision.norm,
            epoch=epoch,
            owners=owners,
            shard=self.number,
            durable=self.durable if self._protected else -1,
            sums=_added(ends) if self.number == 0 else {},
            arena=None if address is None else dict(address),
        )

    def forget(self, before: int) -> None:
        """No shard will ask for an update before this number again."""
        for old in [round for round in self.told if round < before]:
            del self.told[old]

    def _give(self, who: bytes, release: m.Release) -> None:
        """A round's end, and the parameters where they cannot be read here."""
        session = self.sessions.get(who)
        if session is None:
            return
        shared = session.memory is not None and release.arena is not None
        self._send(who, release if shared else attrs.evolve(release, arena=None), None)
        if not shared:
            # Nothing changes them before all workers have them and have pushed again.
            own = self.model.memory.tensor
            self._give_frames(who, release.round, own if self._copy is None else self._copy.values.clone())

    def _give_changes(self, who: bytes, release: m.Release, changes: Sequence[Tensor | None]) -> None:
        """A round's end to one that has all that was before it, and what to add."""
        assert self._copy is not None
        self._send(who, release, None)
        size = self.model.schema.chunk
        for chunk, wire in enumerate(changes):
            if who not in self.sessions:
                return
            start, round = chunk * size, release.round
            stop = min(start + size, self.model.space.bytes)
            if wire is None:
                params = m.Params(round=round, start=start, stop=stop)
                self._send(who, params, buffer_of(self._copy.piece(self._copy.values, chunk).clone()))
            else:
                params = m.Params(round=round, start=start, stop=stop, codec=self._copy.name, base=round - 1)
                self._send(who, params, buffer_of(wire))

    def _give_frames(self, who: bytes, round: int, values: Tensor) -> None:
        size = self.model.schema.chunk
        for start in range(0, values.numel(), size):
            stop = min(start + size, values.numel())
            if who not in self.sessions:
                return
            params = m.Params(round=round, start=start, stop=stop)
            self._send(who, params, buffer_of(values[start:stop]))

    def _answered(self, who: bytes, verdict: Verdict, round: int, share: int) -> bool:
        if verdict is Verdict.TAKE or verdict is Verdict.KNOWN:
            return verdict is Verdict.KNOWN
        if verdict is Verdict.WRONG:
            raise BadFrame("field", f"share {share} of round {round} is not cut so")
        text = "a round before it is missing"
        self._send(who, m.Nack(code="early", text=text, round=self.next, share=share), None)
        return True

    def _forget_round(self) -> None:
        self._staged.clear()
        self._ends = {}
        self._told_now = False

    def _source(
        self, session: Session, place: int, start: int, stop: int, payload: memoryview | None
    ) -> Tensor:
        """The bytes of a message, in its payload or in the memory that the worker shares: there the space begins at
        `place`."""
        if place < 0:
            if payload is None or payload.nbytes != stop - start:
                raise BadFrame("field", "a payload of another size than the message says")
            return view_of(payload, torch.uint8, stop - start)
        if payload is not None or session.memory is None:
            raise BadFrame("field", "a place in memory that is not shared")
        if place + stop > session.memory.tensor.numel():
            raise BadFrame("field", "a place beyond the memory that is shared")
        return session.memory.tensor[place + start : place + stop]

    # -- state --------------------------------------------------------------------------------------------------------

    def _fetch(self, who: bytes, fetch: m.Fetch) -> None:
        model = self.model
        if fetch.round not in (-1, self.next):
            self._send(who, m.Nack(code="early", text="not there yet", round=self.next), None)
            return
        if fetch.what == "optimizer":
            tensors, plain = model.state()
            data = memoryview(blobs.pack({"plain": plain, "groups": model.groups()}, tensors))
        else:
            # A copy: it is on its way while the next update is made.
            data = buffer_of(model.memory.tensor.clone())
        size, total = model.schema.chunk, data.nbytes
        for start in range(0, max(1, total), size):
            stop = min(start + size, total)
            state = m.State(what=fetch.what, start=start, stop=stop, total=total)
            self._send(who, state, data[start:stop])

    def _write(self, *, always: bool = False) -> None:
        """Write a snapshot where one is due. A disk that takes none leaves the run without that protection, which is
        said, and tried again."""
        if self._snapshots is None or not self._every:
            return
        owed = self.durable < self._keep <= self.next
        if not (always or owed or self.next - self.durable >= self._every):
            return
        model = self.model
        tensors, plain = model.state()
        facts = {
            "schema": model.schema.plain(),
            "groups": model.groups(),
            "plain": plain,
            "next": self.next,
            "updates": self._updates,
            "step": self.step,
            "every": self._every,
            "first": self.first,
            "owners": list(self.owners),
            "told": [[round, told.square, told.finite] for round, told in self.told.items()],
            # A worker may not have heard it yet.
            "last": self._last and {**attrs.asdict(self._last), "durable": self.next, "arena": None},
            **self._facts(),
        }
        named = {f"state/{path}": value for path, value in tensors.items()}
        try:
            if self._copy is not None:
                named["reference"] = self._copy.values
            self._snapshots.write(facts, {"parameters": model.memory.tensor, **named})
        except OSError as error:
            if self._protected:
                self._notice(
                    f"server {self.number} cannot write a snapshot ({error.strerror or error}): until it can, a server "
                    "that is lost takes the run back to its newest version"
                )
            self._protected = False
            return
        if not self._protected:
            self._notice(f"server {self.number} writes snapshots again")
        self._protected = True
        self.durable = self.next

    def _facts(self) -> Mapping[str, Any]:
        """What else a snapshot has to know."""
        return {}

    def recover(self) -> None:
        """Take up the snapshot of this start of the run, if there is one."""
        found = None if self._snapshots is None else self._snapshots.read()
        if found is None:
            return
        facts, tensors = found
        self._schema = Schema.of(facts["schema"])
        model = self._built(self._schema)
        with torch.no_grad():
            model.memory.tensor.copy_(tensors.pop("parameters"))
            if self._copy is not None:
                self._copy.values.copy_(tensors.pop("reference"))
        model.take_state(
            {path.removeprefix("state/"): each for path, each in tensors.items()}, facts["plain"]
        )
        model.take_groups(facts["groups"])
        self._updates, self._every, self.first = facts["updates"], facts["every"], facts["first"]
        self.step = facts["step"]
        self.told = {round: Told(square, finite) for round, square, finite in facts["told"]}
        self.owners = tuple(facts["owners"])
        self._start(facts["next"], facts)
        self.durable = self.next
        if facts["last"]:
            address = model.memory.address
            last = {**facts["last"], "owners": tuple(facts["last"]["owners"])}
            self._last = m.Release(**{**last, "arena": None if address is None else dict(address)})
        self._notice(f"server {self.number} goes on from its snapshot, after {self._updates} updates")


def _added(ends: list[m.End]) -> dict[str, float]:
    """The terms of the loss, over all shares."""
    total: dict[str, float] = {}
    for end in ends:
        for name, value in end.sums.items():
            total[name] = total.get(name, 0.0) + value
    return total
