"""What goes between a worker and the shards: what the run begins with, shares of rounds, and the state to save."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import torch
from torch import Tensor

from nlpkernel.errors import TrainingError, fail
from nlpkernel_zmq import blobs
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.compress.cost import Exchanged
from nlpkernel_zmq.compress.down import Copy
from nlpkernel_zmq.compress.up import Up
from nlpkernel_zmq.fitting import MOST, every, kept, slots
from nlpkernel_zmq.layout import ALIGN, Parameter
from nlpkernel_zmq.memory import Memory, available
from nlpkernel_zmq.regions import places
from nlpkernel_zmq.server.model import Schema
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import buffer_of, name_of, view_of
from nlpkernel_zmq.worker.gradients import Gradients, Pushed
from nlpkernel_zmq.worker.link import RESUME

if TYPE_CHECKING:
    from nlpkernel.hookspecs.communicator import Work
    from nlpkernel.hookspecs.compressor import Compressor
    from nlpkernel.hookspecs.model import ParameterGroup
    from nlpkernel_zmq.component import ZmqPs
    from nlpkernel_zmq.worker.link import Link, Server

#: After any number of an update.
_LAST = 1 << 62
#: Seconds after which a question that had no answer is asked again.
_PATIENCE = 0.3
#: Seconds in which a worker that seems to be gone may say that it is not.
_GRACE = 10.0


class Exchange:
    """See the module. round: the round of all workers that is next, or at hand."""

    def __init__(
        self,
        settings: ZmqPs,
        link: Link,
        work: Work,
        groups: Sequence[ParameterGroup],
        *,
        whole: bool,
        compressor: Compressor | None = None,
        down: Compressor | None = None,
    ) -> None:
        self._link = link
        self.round = 0
        named = list(work.named)
        tensors = [tensor for _, tensor in named]
        self._chunk = settings.chunk // ALIGN * ALIGN
        self._schema = Schema(
            parameters=tuple(
                Parameter(name, tuple(tensor.shape), name_of(tensor.dtype), tensor.itemsize)
                for name, tensor in named
            ),
            groups=tuple((tuple(each.names), each.decay, frozenset(each.tags)) for each in groups),
            shards=len(link.servers),
            whole=whole,
            clip=work.clip,
            chunk=self._chunk,
        )
        self._spaces = self._schema.spaces()
        _, size = places(self._spaces)
        parameters = self._schema.parameters
        #: What makes gradients smaller. A share of a worker that is gone travels without, since it owes nothing of it.
        self.up = None if compressor is None else Up(compressor, parameters, self._spaces, self._chunk)
        self._slots = slots(settings.replay, size if self.up is None else self.up.bytes)
        self._protects = self._slots > 1
        self._every = every(self._slots)
        #: What is to be said of that; "" where there is room enough.
        self.told = ""
        if settings.replay and self._slots < MOST:
            self.told = kept(settings.replay, size if self.up is None else self.up.bytes)
        # Where each gradient has its place among several, the parameters come to a place behind them.
        free = settings.mode != "sync"
        shares = settings.payload == "memory" or (
            settings.payload == "auto" and not (settings.compresses or link.joined) and available()
        )
        # What is encoded is kept as that, and needs no place of its own.
        total = size if self.up is not None else (self._slots + free) * size
        self._memory = Memory.shared(total) if shares else Memory.private(total)
        self._reply = self._slots * size if free and shares else -1
        self.gradients = Gradients(self._schema.parameters, tensors, self._spaces, self._chunk, self._tell)
        self._count = 0
        self._kept: list[Pushed] = []
        self._dropped = -1
        self._now: Pushed | None = None
        self._beginning = False
        self._opened: dict[int, tuple[tuple[int, int], Memory]] = {}
        self._received = [torch.empty(0, dtype=torch.uint8) for _ in self._spaces]
        #: The parameters of each shard as all workers have them, and after which round each piece of them is.
        self.copies: list[Copy] = []
        self._after: list[list[int]] = [[-1] * space.chunks(self._chunk) for space in self._spaces]
        if down is not None:
            self.copies = [Copy(down, parameters, space, self._chunk) for space in self._spaces]
            self._received = [copy.values for copy in self.copies]
        link.back = self._back
        if not free:
            link.went_on = self._back
            link.beaten = self._look_back
        self._free, self._begun = free, False
        #: Shares of rounds that are over here which a server has to have again and nobody has: since when.
        self._missed: dict[tuple[int, int, int], float] = {}
        link.took = self._took
        link.call_shards(self._memory.address)

    # -- beginning ----------------------------------------------------------------------------------------------------

    def upload(
        self,
        state: Mapping[Tensor, Mapping[str, Any]],
        groups: Sequence[Mapping[str, Any]],
        named: Mapping[str, Tensor],
        *,
        step: int,
        updates: int,
        reference: Mapping[str, Tensor] | None = None,
    ) -> None:
        """The first worker gives the shards what is trained, the parameters and the optimizer's state. reference: the
        parameters as workers have them, where they have others."""
        self._beginning, self._begun = True, False
        region = self._memory.tensor[: self.gradients.size]
        self.gradients.write(region)
        schema = msgpack.packb(self._schema.plain())
        for server in self._link.servers:
            generation = -1
            while server.begun != self.round or generation != server.generation:
                # A server that is started again meanwhile gets it all again.
                self._link.wait(lambda server=server: bool(server.generation), f"server {server.number}")  # type: ignore[misc]
                generation, server.begun = server.generation, -1
                self._put(server, "schema", schema)
                self._link.send(server, m.Begin(what="schema"))
                self._put_parameters(server, region)
                if reference and self.copies:
                    self.gradients.fill(self._received, [reference[name] for name in named])
                    self._put(server, "reference", buffer_of(self._received[server.number]))
                self._put(server, "optimizer", self._optimizer_of(server, state, groups, named))
                begin = m.Begin(what="state", round=self.round, step=step, updates=updates, every=self._every)
                self._link.send(server, begin)
                self._link.wait(
                    lambda server=server, generation=generation: (  # type: ignore[misc]
                        server.begun == self.round or server.generation != generation
                    ),
                    f"server {server.number} to begin",
                )
        self._beginning = False

    def began(self, round: int) -> None:
        """All shards have what the first worker gave them; rounds go on with this one."""
        self.round = round
        self._kept.clear()
        self._dropped = round - 1
        self._begun = True
        if self.copies:
            self.gradients.fill(self._received)
            self._after = [[round - 1] * len(each) for each in self._after]
        for server in self._link.servers:
            server.began = True
            server.next = max(server.next, round)
            server.durable = max(server.durable, round)

    def _put_parameters(self, server: Server, region: Tensor) -> None:
        size = self._spaces[server.number].bytes
        if self._memory.address is None:
            self._put(server, "parameters", buffer_of(self.gradients.part(region, server.number)))
            return
        place = self.gradients.base(server.number)
        self._link.send(server, m.Put(what="parameters", start=0, stop=size, total=size, place=place))

    def _optimizer_of(
        self,
        server: Server,
        state: Mapping[Tensor, Mapping[str, Any]],
        groups: Sequence[Mapping[str, Any]],
        named: Mapping[str, Tensor],
    ) -> bytearray:
        tensors: dict[str, Tensor] = {}
        plain: dict[str, Any] = {}
        for stretch in self._spaces[server.number].stretches:
            parameter = self._schema.parameters[stretch.parameter]
            for key, value in state.get(named[parameter.name], {}).items():
                if not isinstance(value, Tensor):
                    plain[f"{key}/{parameter.name}"] = value
                    continue
                if stretch.elements < parameter.elements and tuple(value.shape) == parameter.shape:
                    value = value.reshape(-1)[stretch.start : stretch.stop]
                tensors[f"{key}/{parameter.name}"] = value
        return blobs.pack({"plain": plain, "groups": [dict(group) for group in groups]}, tensors)

    def _put(self, server: Server, what: str, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for start in range(0, max(1, view.nbytes), self._chunk):
            stop = min(start + self._chunk, view.nbytes)
            put = m.Put(what=what, start=start, stop=stop, total=view.nbytes)
            # Copied: the row is gone when this returns.
            self._link.send(server, put, bytes(view[start:stop]))

    # -- a share ------------------------------------------------------------------------------------------------------

    def begin(
        self, share: int, of: int, step: int, *, window: int | None = None, leased: bool = False
    ) -> None:
        """A share of the round, or a window, is about to be computed. Waits until no shard can need what is in its
        place. leased: beside this worker's own, which stays where it is."""
        size = self.gradients.size
        if leased:
            region, slot = torch.zeros(size, dtype=torch.uint8), -1
        else:
            slot = self._count % self._slots
            self._link.wait(lambda: self._has_room(slot), "a snapshot of the servers")
            region = self._memory.tensor[:size] if self.up is not None else self._place(slot)
            self._count += 1
        self._forget(slot)
        self._now = Pushed(
            round=self.round if window is None else window,
            share=share,
            of=of,
            step=step,
            region=region,
            slot=slot,
            place=slot * size if slot >= 0 and self._memory.address is not None else -1,
            told=[set() for _ in self._spaces],
        )
        self._kept.append(self._now)
        self.gradients.begin(region)

    def end(self, *, empty: bool, scale: float, factor: float, sums: Mapping[str, float]) -> None:
        """All micro-batches are through: the share is whole."""
        now = self._now
        assert now is not None
        now.empty, now.scale, now.factor, now.sums = empty, scale, factor, dict(sums)
        if not empty:
            now.absent = self.gradients.finish()
            if self.up is not None:
                now.absent = self.up.without_gradient(now.absent, now.wire)
        now.ended = True
        for server in self._link.servers:
            self._push_end(server, now)

    def is_over(self, round: int) -> bool:
        """Whether all shards have made an update of a round, and the parameters are here."""
        return all(self._is_over(server, round) for server in self._link.servers)

    def take_up(self, round: int) -> m.Release:
        """Take the parameters after a round that is over. Returns what the first shard said of it."""
        while True:
            self._link.wait(lambda: self.is_over(round), "the others")
            releases, parts = [], []
            for server in self._link.servers:
                assert server.release is not None
                try:
                    parts.append(self._part_of(server.number, server.release))
                    releases.append(server.release)
                except BadFrame:
                    # That server has ended before its memory was opened here; the next one says it again when asked.
                    server.release, server.generation = None, 0
            if len(parts) == len(self._link.servers):
                break
        self.gradients.read(parts)
        for pushed in self._kept:
            if pushed.round == round:
                pushed.order = releases[0].number
        self._now = None
        if self.up is not None:
            self.up.settle(not releases[0].applied)
        return releases[0]

    def _place(self, slot: int) -> Tensor:
        size = self.gradients.size
        return self._memory.tensor[slot * size : (slot + 1) * size]

    def _has_room(self, slot: int) -> bool:
        """Whether no shard can ask for what is in this slot; where they cannot keep anything safe there is no use in
        waiting."""
        return not self._protects or all(
            server.durable < 0 or server.durable > each.order
            for each in self._kept
            if each.slot == slot and each.order is not None
            for server in self._link.servers
        )

    def _forget(self, slot: int) -> None:
        """Drop what no shard can ask for any more, and what has to make room in a slot."""
        durable = min((server.durable for server in self._link.servers), default=0)
        kept = []
        for pushed in self._kept:
            if pushed.order is None or (pushed.order >= durable and pushed.slot != slot and self._protects):
                kept.append(pushed)
                continue
            if pushed.slot < 0:
                self.gradients.drop(pushed.region)
            if pushed.order >= durable:
                self._dropped = max(self._dropped, pushed.order)
        self._kept = kept

    def _tell(self, shard: int, chunk: int) -> None:
        now = self._now
        assert now is not None
        now.told[shard].add(chunk)
        if self.up is not None and now.slot >= 0:
            own = self.gradients.part(now.region, shard)[chunk * self._chunk : (chunk + 1) * self._chunk]
            now.wire[shard, chunk] = self.up.encode(shard, chunk, own)
        self._push(self._link.servers[shard], now, chunk)

    def _push(self, server: Server, pushed: Pushed, chunk: int) -> None:
        start = chunk * self._chunk
        stop = min(start + self._chunk, self._spaces[server.number].bytes)
        place, payload, codec = -1, None, ""
        if (wire := pushed.wire.get((server.number, chunk))) is not None and self.up is not None:
            payload, codec = buffer_of(wire), self.up.name
        elif pushed.place >= 0:
            place = pushed.place + self.gradients.base(server.number)
        else:
            payload = buffer_of(self.gradients.part(pushed.region, server.number)[start:stop])
        push = m.Push(
            round=pushed.round,
            share=pushed.share,
            of=pushed.of,
            start=start,
            stop=stop,
            codec=codec,
            place=place,
        )
        self._link.send(server, push, payload)

    def _push_end(self, server: Server, pushed: Pushed) -> None:
        end = m.End(
            round=pushed.round,
            share=pushed.share,
            of=pushed.of,
            step=pushed.step,
            empty=pushed.empty,
            absent=pushed.absent,
            factor=pushed.factor,
            scale=pushed.scale,
            sums=pushed.sums,
            reply=-1 if self._reply < 0 else self._reply + self.gradients.base(server.number),
        )
        self._link.send(server, end)

    def _is_over(self, server: Server, round: int) -> bool:
        release = server.release
        if release is None or release.round != round:
            return False
        whole = self._spaces[server.number].chunks(self._chunk)
        return release.arena is not None or release.placed or len(server.pieces) == whole

    def _back(self, server: Server) -> None:
        """A shard is at an update that this worker's pushes have led to already, or are to: all of it again from there
        on."""
        if self._beginning:
            return
        if not server.began:
            if self._begun:
                # What it said before it began may be that late; or it was started again, and has no snapshot.
                server.doubts += 1
                server.generation = 0
                if server.doubts > 8:
                    raise self._lost(server)
            return
        server.doubts = 0
        if server.unsafe or self._dropped >= server.next:
            raise self._lost(server)
        due = [each for each in self._kept if each.order is None or each.order >= server.next]
        if not self._free:
            # It takes nothing of a round before the one before is over: then `went_on` comes here again.
            due = [each for each in due if each.round == server.next] if server.again != server.next else []
            server.again = server.next if due else server.again
        for pushed in sorted(due, key=lambda each: _LAST if each.order is None else each.order):
            if not pushed.empty:
                for chunk in sorted(pushed.told[server.number]):
                    self._push(server, pushed, chunk)
            if pushed.ended:
                self._push_end(server, pushed)

    def _look_back(self) -> None:
        """Whether a share that this worker is to do for one that is gone is of a round that it has left behind, and
        that a server has to have again. Nobody has the parameters to compute it with any more; but its worker may only
        seem to be gone to a coordinator that was started again."""
        now, found = time.monotonic(), dict[tuple[int, int, int], float]()
        for server in self._link.servers:
            shares = self._link.leased.get(server.next, ()) if server.next < self.round else ()
            kept = {each.share for each in self._kept if each.round == server.next and each.ended}
            for share in set(shares) - kept if server.began else ():
                key = (server.number, server.next, share)
                found[key] = self._missed.get(key, now)
                if now - found[key] > _GRACE:
                    raise fail(
                        TrainingError,
                        "ZPS003",
                        f"server {server.number} came back at update {server.next + 1} and has to have share {share} "
                        "of it again, whose worker is gone",
                        owner=OWNER,
                        hint=RESUME,
                    )
        self._missed = found

    def _lost(self, server: Server) -> Exception:
        return fail(
            TrainingError,
            "ZPS003",
            f"server {server.number} came back at update {server.next + 1}, and this worker does not keep all that it "
            "sent since",
            owner=OWNER,
            hint=RESUME,
        )

    # -- parameters ---------------------------------------------------------------------------------------------------

    def _took(self, shard: int, params: m.Params, payload: memoryview) -> bool:
        """A piece of the parameters came in a frame. False: it is to be added to what is not here."""
        chunk, rest = divmod(params.start, self._chunk)
        if rest or not 0 <= chunk < len(self._after[shard]):
            raise BadFrame("field", f"parameters from byte {params.start} on are no piece")
        if params.codec:
            if not self.copies or params.codec != self.copies[shard].name:
                raise BadFrame("field", f"parameters that {params.codec[:40]!r} has made are not expected")
            if params.base != self._after[shard][chunk]:
                return False
            self.copies[shard].add(chunk, payload)
            self._after[shard][chunk] = params.round
            return True
        self._after[shard][chunk] = params.round
        size = self._spaces[shard].bytes
        if self._received[shard].numel() != size:
            self._received[shard] = torch.zeros(size, dtype=torch.uint8)
        piece = view_of(payload, torch.uint8, params.stop - params.start)
        self._received[shard][params.start : params.stop] = piece
        return True

    def _part_of(self, shard: int, release: m.Release) -> Tensor:
        size = self._spaces[shard].bytes
        if release.placed:
            start = self._reply + self.gradients.base(shard)
            return self._memory.tensor[start : start + size]
        if release.arena is None:
            return self._received[shard][:size]
        key = (release.arena["pid"], release.arena["descriptor"])
        known = self._opened.get(shard)
        if known is None or known[0] != key:
            known = self._opened[shard] = (key, Memory.of(release.arena))
        return known[1].tensor

    # -- what is saved ------------------------------------------------------------------------------------------------

    def pull(self, number: int = -1) -> None:
        """Take the parameters as they are before an update, or now."""
        parts = [self._fetched(server, "parameters", number) for server in self._link.servers]
        self.gradients.read([view_of(part, torch.uint8, len(part)) for part in parts])

    def exchanged(self, workers: int) -> Exchanged:
        """What a window exchanges. Takes the parameters of the largest shard a few times, to see how fast they come."""
        server = max(self._link.servers, key=lambda each: self._spaces[each.number].bytes)
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            self._fetched(server, "parameters", -1)
            seconds.append(time.perf_counter() - start)
        return Exchanged(
            parameters=self._schema.parameters,
            spaces=self._spaces,
            chunk=self._chunk,
            workers=workers,
            link=self._spaces[server.number].bytes / min(seconds),
        )

    def fetch(self, number: int) -> Iterator[tuple[str, str, Any]]:
        """The optimizer's state before an update: (parameter, key, value), whole."""
        gathered: dict[tuple[str, str], Any] = {}
        named = {each.name: each for each in self._schema.parameters}
        for server in self._link.servers:
            facts, tensors = blobs.unpack(self._fetched(server, "optimizer", number))
            for path, value in facts["plain"].items():
                key, _, name = path.partition("/")
                gathered[name, key] = value
            stretches = {
                self._schema.parameters[each.parameter].name: each
                for each in self._spaces[server.number].stretches
            }
            for path, value in tensors.items():
                key, _, name = path.partition("/")
                stretch, elements = stretches[name], named[name].elements
                if stretch.elements < elements and value.numel() == stretch.elements:
                    whole = gathered.setdefault((name, key), value.new_empty(elements))
                    whole[stretch.start : stretch.stop] = value
                else:
                    gathered[name, key] = value
        for (name, key), value in gathered.items():
            if isinstance(value, Tensor) and value.dim() == 1 and value.numel() == named[name].elements:
                value = value.reshape(named[name].shape)
            yield name, key, value

    def _fetched(self, server: Server, what: str, number: int) -> bytearray:
        asked, since = -1, 0.0
        server.state, server.state_whole = None, False

        def whole() -> bool:
            nonlocal asked, since
            # A shard that is not at this update yet says so, and one that is started again says nothing.
            silent = server.state is None and time.monotonic() - since > _PATIENCE
            if server.generation and (asked != server.generation or silent):
                asked, since = server.generation, time.monotonic()
                server.state, server.state_whole = None, False
                self._link.send(server, m.Fetch(what=what, round=number))
            return server.state_whole and asked == server.generation

        self._link.wait(whole, f"what server {server.number} holds")
        assert server.state is not None
        data, server.state = server.state, None
        return data
