"""The coordinator: who is in the run, where they meet, when a round is over, and who computes what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from nlpkernel_zmq.machines.leases import Leases
from nlpkernel_zmq.machines.meetings import Meetings
from nlpkernel_zmq.machines.members import Entry, Lease, Members
from nlpkernel_zmq.machines.order import Order
from nlpkernel_zmq.machines.pace import Pace
from nlpkernel_zmq.machines.sequencer import Decision, Sequencer, Told
from nlpkernel_zmq.server.again import Again
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame

#: Bytes of what one worker may say at a meeting.
LARGEST_WORD = 64 << 20
#: Letters of the name of a meeting.
LARGEST_KEY = 64


@attrs.define
class Peer:
    """One connection to the coordinator: of a worker, of its pulse, or of a shard."""

    role: str
    number: int
    incarnation: int


@attrs.define
class Pulse:
    """The beats of a worker. told: it was said that it does not get on."""

    incarnation: int
    heard: float
    moves: int = -1
    moved: float = 0.0
    phase: str = ""
    step: int = 0
    told: bool = False


@attrs.frozen(kw_only=True)
class Limits:
    """Seconds: between beats, until a worker without one is lost (None: never), and until one that does not get on is
    named."""

    beat: float
    silence: float | None
    stall: float


class Coordinator:
    """See the module. `send` answers a connection, `decided` tells the shard of this process: (decision, epoch, owners
    of the next round), and `keep` that a snapshot is due once all updates before a number are made. `leases` gives
    windows out where not all compute each together; `applied` says whether the shard of this process has applied one.
    began: the run goes on already, with this round at hand and these owners. Of the workers so many are `here`; the
    others join from other machines, and come in later. waits: the run does not begin without them."""

    def __init__(
        self,
        workers: int,
        endpoints: Sequence[str],
        limits: Limits,
        *,
        generation: int,
        send: Callable[[bytes, m.Message, Any], None],
        decided: Callable[[Decision, int, tuple[int, ...]], None],
        notice: Callable[[str], None],
        keep: Callable[[int], None] = lambda number: None,
        leases: Leases | None = None,
        applied: Callable[[int], bool] = lambda window: False,
        here: int | None = None,
        waits: bool = False,
    ) -> None:
        self._workers, self._limits = workers, limits
        #: Where the shards are, on this machine.
        self.endpoints = tuple(endpoints)
        self._generation, self._send, self._decided, self._notice = generation, send, decided, notice
        self._here = workers if here is None else here
        self._waits = waits
        self.peers: dict[bytes, Peer] = {}
        self._members = Members()
        self._meetings = Meetings()
        self._sequencer = Sequencer(len(endpoints))
        self._order = Order(len(endpoints))
        self._keep = keep
        self._again = Again(self._members, self._order, leases, self._make_safe)
        self.leases, self._applied = leases, applied
        self._pace = Pace()
        self.began = False
        #: Workers that came into the run later, and those of them that own no share yet.
        self._late: set[int] = set()
        self._waiting: set[int] = set()
        #: Of the round at hand and the one before it: owners, in order, and which processes they are (None: any).
        self._owners: dict[int, dict[int, int | None]] = {}
        self._pulses: dict[int, Pulse] = {}
        #: Workers that wait for a window, each before an end.
        self._claims: dict[int, int] = {}
        self._holder: bytes | None = None
        self._restored: float | None = None
        #: Whether the first worker has left: then there is nothing to come into.
        self._over = False
        self._unsure: tuple[int, Sequence[int]] | None = None
        #: Who is to say hello again before the owners of another round are known, and what waits for that.
        self._expected: set[int] = set()
        self._pending: list[tuple[Decision, bytes | None]] = []

    def restore(self, round: int, owners: Sequence[int], now: float, *, sure: bool) -> None:
        """The run goes on: what a snapshot knows of it. Where it knows of no update yet, nobody knows whether the
        workers have begun; one that took part says so."""
        self._restored, self._expected = now, set(owners)
        self._order.next = max(self._order.next, round)
        if not sure:
            self._unsure = round, owners
            return
        self._unsure = None
        self.began = True
        self._members.restore(round, owners)
        self._owners[round] = self._owners[round - 1] = dict.fromkeys(owners)

    # -- who is there -------------------------------------------------------------------------------------------------

    def hello(self, who: bytes, hello: m.Hello, now: float, endpoints: tuple[str, ...] | None = None) -> None:
        """Somebody says hello. endpoints: where it finds the shards, if not on this machine."""
        if self._withholds(hello):
            away = set(range(self._here, self._workers)) - self._members.living.keys()
            self._send(who, m.Pong(missing=tuple(f"worker {each}" for each in sorted(away))), None)
            return
        if hello.took_part and self._unsure is not None and not self.began:
            self.restore(*self._unsure, now, sure=True)
        if hello.role == "worker" and not self._enter(who, hello):
            return
        if hello.role == "shard" and not 0 < hello.number < len(self.endpoints):
            text = f"the run has {len(self.endpoints)} servers, and server {hello.number} is not to say hello"
            self._send(who, m.Reject(code="full", text=text), None)
            return
        if hello.role == "pulse":
            if self.began and hello.took_part and hello.number not in self._members.living:
                # It computes, and says so itself only when it waits.
                self._members.rejoin(hello.number, hello.incarnation)
            if not self._members.is_current(hello.number, hello.incarnation):
                self._send(who, m.Reject(code="fenced", text="it is no member"), None)
                return
            self._pulses[hello.number] = Pulse(hello.incarnation, now, moved=now)
        for other, peer in list(self.peers.items()):
            if other != who and (peer.role, peer.number) == (hello.role, hello.number):
                del self.peers[other]
        self.peers[who] = Peer(hello.role, hello.number, hello.incarnation)
        self._send(who, self._welcome(hello, endpoints), None)
        if hello.role == "shard":
            self._again.keepers.hello(hello.number)
            if self._again.unkept:
                self._send(who, m.Keep(number=self._again.unkept), None)
        if self._over and hello.role == "worker" and hello.number in self._waiting:
            self._send(who, m.Leave(), None)
        if self._restored is not None and self.began and self._expected <= self._members.living.keys():
            self._all_back()
        self._decide()

    def _all_joined(self) -> bool:
        """Whether no worker that the run waited for is still about to open what it needs: from the second round on it
        takes part."""
        if self._waits and not self.began:
            return not any(worker in self._waiting for worker in self._members.living)
        return True

    def _withholds(self, hello: m.Hello) -> bool:
        """Whether a worker of this machine, which says hello again and again, has to wait for those that join."""
        if hello.role != "worker" or hello.number >= self._here or self.began or hello.took_part:
            return False
        return self._waits and not set(range(self._here, self._workers)) <= self._members.living.keys()

    def _enter(self, who: bytes, hello: m.Hello) -> bool:
        worker, members = hello.number, self._members
        if worker >= self._workers:
            text = f"the run has {self._workers} workers, and there is no worker {worker}"
            self._send(who, m.Reject(code="full", text=text), None)
            return False
        if self.began and hello.took_part and worker not in members.living:
            members.rejoin(worker, hello.incarnation)
        before = members.living.get(worker)
        if before is not None and before[1] != hello.incarnation:
            # The older process is gone, or will find itself replaced.
            self._lost(worker, before[1])
        entry = members.join(worker, hello.incarnation)
        if entry is Entry.FENCED or not members.is_current(worker, hello.incarnation):
            text = f"worker {worker} was counted as lost, or was replaced by another process"
            self._send(who, m.Reject(code="fenced", text=text), None)
            return False
        joins = worker >= self._here
        if joins or hello.late:
            # It has no part in versions and meetings: neither needs another machine.
            self._late.add(worker)
        if (self.began or joins) and not hello.took_part and entry is not Entry.BACK:
            self._late.add(worker)
            self._waiting.add(worker)
            after = ", which goes on" if self.began else ""
            self._notice(
                f"worker {worker} comes into the run{' from another machine' if joins else ''}{after}"
            )
            self._hand_out(members.leases())
        if self.leases is not None:
            self.leases.join(worker)
        elif hello.took_part:
            for share, owner in enumerate(members.owners):
                if owner == worker:
                    # Where it was told before, it knows.
                    self._send(who, m.Lease(round=members.round, share=share), None)
        return True

    def _lost(self, worker: int, incarnation: int) -> None:
        leases = self._members.lose(worker, incarnation)
        self._waiting.discard(worker)
        self._pulses.pop(worker, None)
        if self.began:
            self._again.gone(worker)
        if self.leases is not None:
            window = self.leases.leave(worker)
            if window is not None:
                self._again.abandon(window)
            self._claims.pop(worker, None)
            self._grant()
        self._hand_out(leases)
        self._close_meetings()
        self._decide()

    def _hand_out(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._notice(
                f"worker {lease.worker} does share {lease.share} of round {lease.round}, whose worker is gone"
            )
            self._to_worker(lease.worker, m.Lease(round=lease.round, share=lease.share))

    def tick(self, now: float) -> None:
        """Look at the beats, and at who waits for whom; and where this coordinator was started again, who has not come
        back."""
        self._look_at_pace(now)
        if self._restored is not None and now - self._restored > 4 * self._limits.beat + 2:
            self._all_back()
        for worker, pulse in list(self._pulses.items()):
            limit = self._limits.silence
            if limit is not None and now - pulse.heard > limit:
                self._notice(
                    f"worker {worker} is silent since {now - pulse.heard:.0f} s {_where(pulse)}; the others go on "
                    "without it"
                )
                self._lost(worker, pulse.incarnation)
            elif now - pulse.moved > self._limits.stall and not pulse.told:
                pulse.told = True
                self._notice(f"worker {worker} has not got on for {now - pulse.moved:.0f} s {_where(pulse)}")

    def _look_at_pace(self, now: float) -> None:
        """Say now and then whom the others wait for."""
        leases = self.leases
        if leases is None or leases.staleness is None or not self.began:
            return
        waiting = [
            worker for worker in self._claims if worker in leases.clocks and leases.is_held_back(worker)
        ]
        slow = self._pace.turn(now, len(waiting), leases.slowest(), len(leases.clocks) - 1)
        if slow is not None:
            self._notice(
                f"worker {slow.worker} is the slowest, and the others go at its pace: they waited for it in "
                f"{slow.share:.0%} of the last {slow.seconds:.0f} s, since nobody may be more than "
                f"{leases.staleness} windows ahead (staleness); with mode = 'async' nobody waits"
            )

    def _all_back(self) -> None:
        """Whoever comes back to a coordinator that was started again has come."""
        self._restored = None
        self._hand_out(self._members.leases())
        self._decide()
        self._close_meetings()
        self._grant()

    def _missing(self, who: bytes, worker: int) -> list[str]:
        """For whom a worker waits, for people."""
        found = self._meetings.missing(worker, self._who_meets)
        if self.leases is not None and (worker in self._claims or who == self._holder):
            found = sorted({*found, *self.leases.held} - {worker})
        shards = {peer.number for peer in self.peers.values() if peer.role == "shard"}
        servers = [number for number in range(1, len(self.endpoints)) if number not in shards]
        return [*(f"worker {each}" for each in found), *(f"server {each}" for each in servers)]

    # -- what can be sent again ---------------------------------------------------------------------------------------

    def _make_safe(self, number: int) -> None:
        for who, peer in list(self.peers.items()):
            if peer.role == "shard":
                self._send(who, m.Keep(number=number), None)
        self._keep(number)

    def stands(self, shard: int, number: int) -> None:
        """A shard stands before this update. Where it waits for what nobody has, the run cannot go on."""
        if self._restored is not None:
            return
        for lost in self._again.stands(shard, number):
            if self.leases is None:
                # Perhaps somebody did it instead; if not, that one says so.
                self._to_worker(lost.heir, m.Lease(round=lost.round, share=lost.share))
                continue
            text = (
                f"server {shard} came back at update {number + 1} and has to have window {lost.round + 1} again, "
                "whose worker is gone"
            )
            for who, peer in list(self.peers.items()):
                if peer.role == "worker":
                    self._send(who, m.Reject(code="lost", text=text), None)

    def _close_meetings(self) -> None:
        for key, found in self._meetings.changed_by(self._who_meets).items():
            self._tell_met(key, found)

    def _beat(self, who: bytes, peer: Peer, ping: m.Ping, now: float) -> None:
        pulse = self._pulses.get(peer.number)
        if peer.role == "pulse" and pulse is not None and pulse.incarnation == peer.incarnation:
            pulse.heard, pulse.phase, pulse.step = now, ping.phase, ping.step
            if ping.moves != pulse.moves:
                pulse.moves, pulse.moved, pulse.told = ping.moves, now, False
        elif peer.role == "pulse":
            self._send(who, m.Reject(code="fenced", text="it was counted as lost"), None)
            return
        elif peer.role == "worker" and not self._members.is_current(peer.number, peer.incarnation):
            # It waits for a round that the others have done without it.
            text = f"worker {peer.number} was counted as lost, or was replaced by another process"
            self._send(who, m.Reject(code="fenced", text=text), None)
            return
        expected = self._expected if self._restored is not None else set()
        members = tuple(sorted(self._members.living.keys() | expected))
        late = tuple(sorted(self._late))
        missing = tuple(self._missing(who, peer.number)) if peer.role == "worker" else ()
        pong = m.Pong(epoch=self._members.epoch, members=members, late=late, missing=missing)
        self._send(who, pong, None)

    # -- what they say ------------------------------------------------------------------------------------------------

    def handle(self, who: bytes, message: m.Message, payload: memoryview | None, now: float) -> None:
        """A message of one who said hello. Raise BadFrame where it makes no sense."""
        peer = self.peers[who]
        if isinstance(message, m.Ping):
            if peer.role == "shard":
                self.stands(peer.number, message.step)
            self._beat(who, peer, message, now)
        elif isinstance(message, m.Ready) and (peer.role, peer.number) == ("shard", message.shard):
            told = Told(message.square, message.finite)
            self.ready(message.shard, message.round, told, message.durable, message.number, who)
        elif peer.role == "worker":
            if not self._members.is_current(peer.number, peer.incarnation):
                self._send(who, m.Reject(code="fenced", text=f"worker {peer.number} was replaced"), None)
            else:
                self._from_worker(who, peer.number, message, payload)
        else:
            raise BadFrame("kind", f"{type(message).__name__} of a {peer.role}")

    def _from_worker(self, who: bytes, worker: int, message: m.Message, payload: memoryview | None) -> None:
        if isinstance(message, m.Meet):
            word = b"" if payload is None else bytes(payload)
            if len(word) > LARGEST_WORD:
                raise BadFrame("too-big", f"a word of {len(word)} bytes")
            self._meet(worker, message.key, word)
        elif isinstance(message, m.Enlist):
            self._waiting.discard(worker)
            self._decide()
        elif isinstance(message, m.Claim) and self.leases is not None:
            self._claim(worker, message)
        elif isinstance(message, m.Hold) and self.leases is not None:
            self._hold(who, message)
        elif isinstance(message, m.Leave):
            if message.early:
                self._lost(worker, self.peers[who].incarnation)
                return
            # Its number stays taken: others may be at a meeting for which its word is there already.
            self._pulses.pop(worker, None)
            if self.began:
                self._again.leaves((worker, self.peers[who].incarnation))
            if worker == 0:
                self._over = True
                for late in sorted(self._waiting):
                    self._to_worker(late, m.Leave())
            if self.leases is not None:
                self.leases.leave(worker)
                self._grant()
        else:
            raise BadFrame("kind", f"{type(message).__name__} is not for the coordinator")

    # -- meetings -----------------------------------------------------------------------------------------------------

    def _meet(self, worker: int, key: str, word: bytes) -> None:
        if len(key) > LARGEST_KEY:
            raise BadFrame("too-big", f"a key of {len(key)} letters")
        try:
            found = self._meetings.say(key, worker, word, self._who_meets(key))
        except ValueError as error:
            raise BadFrame("too-big", str(error)) from error
        if found is not None:
            self._tell_met(key, found)

    def _tell_met(self, key: str, found: Mapping[int, bytes]) -> None:
        met = m.Met(key=key, members=tuple(found), sizes=tuple(map(len, found.values())))
        whole = b"".join(found.values())
        for who, peer in list(self.peers.items()):
            # Whoever has it already, or was not there, ignores it.
            if peer.role == "worker":
                self._send(who, met, whole)

    def _who_meets(self, key: str) -> set[int]:
        """Whose words a meeting needs: all workers' before the run begins, then those of the owners of the round that
        it follows, as far as they are there."""
        round, _, _ = key.partition(":")
        number = int(round) if round.lstrip("-").isdecimal() else -1
        if number < 0 or number not in self._owners:
            return set(range(self._here))
        living = self._members.living
        return {
            worker
            for worker, incarnation in self._owners[number].items()
            if worker < self._here
            and (
                incarnation in (None, living[worker][1])
                if worker in living
                else self._restored is not None and incarnation is None
            )
        }

    # -- rounds -------------------------------------------------------------------------------------------------------

    def ready(
        self, shard: int, round: int, told: Told, durable: int, number: int = -1, who: bytes | None = None
    ) -> None:
        """A shard has all of a round, which it knows as update `number`; `who` is None for that of this process."""
        self._again.ready(shard, round, number)
        if self.leases is not None:
            decision = self._order.ready(shard, round, told, number)
            self._order.durable(shard, durable)
        else:
            try:
                decision = self._sequencer.ready(shard, round, told)
            except ValueError as error:
                raise BadFrame("field", str(error)) from error
            self._sequencer.durable(shard, durable)
            decision = None if decision is None else attrs.evolve(decision, number=round)
        if decision is not None:
            self._commit(decision, who)
        self._again.keepers.forget(self.least)

    @property
    def least(self) -> int:
        """Updates before this number are of no use to any shard."""
        return self._order.least if self.leases is not None else self._sequencer.least

    def _commit(self, decision: Decision, who: bytes | None) -> None:
        new = decision.round not in self._owners or decision.round + 1 not in self._owners
        back = self._restored is None or self._expected <= self._members.living.keys()
        if new and self.leases is None and not (back and self._all_joined()):
            # Its owners are there, since they pushed it, and will say so here as well. Or a worker that the run waited
            # for is about to be ready.
            self._pending.append((decision, who))
            return
        if self.leases is not None:
            self._again.decided(decision, self._owners.get(decision.round, {}))
            self.leases.settled(decision.round)
            owners: tuple[int, ...] = ()
        elif new:
            if decision.round not in self._owners:
                self._open(decision.round)
            self._again.decided(decision, self._owners.get(decision.round, {}))
            owners = self._open(decision.round + 1)
            for old in [round for round in self._owners if round < decision.round]:
                del self._owners[old]
        else:
            owners = tuple(self._owners[decision.round + 1])
        self.began = True
        epoch = self._members.epoch
        commit = m.Commit(
            round=decision.round,
            number=decision.number,
            norm=decision.norm,
            finite=decision.finite,
            epoch=epoch,
            owners=owners,
            least=self.least,
            generation=self._generation,
        )
        for other, peer in list(self.peers.items()):
            if peer.role == "shard":
                self._send(other, commit, None)
        self._decided(decision, epoch, owners)
        self._grant()

    def _decide(self) -> None:
        """Commit what waited for workers to say hello again."""
        pending, self._pending = self._pending, []
        for decision, who in pending:
            self._commit(decision, who)

    def _open(self, round: int) -> tuple[int, ...]:
        owners = self._members.open(round, self._waiting)
        self._owners[round] = {worker: self._members.living[worker][1] for worker in owners}
        return owners

    # -- windows ------------------------------------------------------------------------------------------------------

    def _claim(self, worker: int, claim: m.Claim) -> None:
        assert self.leases is not None
        mine = self.leases.held.get(worker, claim.held)
        if mine >= 0 and self._applied(mine):
            # Pushed before, by itself or by another one; what came again said nothing new.
            self.leases.settled(mine)
            if claim.held >= 0:
                return
        if claim.held >= 0 and worker not in self.leases.held:
            self.leases.holds(worker, claim.held)
        else:
            self._claims[worker] = claim.end
        self._grant()

    def _grant(self) -> None:
        """Give windows to those who wait, as far as there are any."""
        if self.leases is None or (self._restored is not None and self.began):
            # After a restart it is not known yet who has which window.
            return
        for worker, end in list(self._claims.items()):
            window = self.leases.claim(worker, end)
            if window is not None:
                del self._claims[worker]
                self._to_worker(worker, m.Claimed(window=window))
        if self._holder is not None and self.leases.quiet:
            self._send(self._holder, m.Held(next=self.leases.next, number=self._order.next), None)
            self._holder = None

    def _hold(self, who: bytes, hold: m.Hold) -> None:
        assert self.leases is not None
        if hold.begin >= 0:
            self.leases.next, self.began = hold.begin, True
        self.leases.until = self.leases.next if hold.hold else None
        self._holder = who if hold.hold else None
        self._grant()

    # -- sending ------------------------------------------------------------------------------------------------------

    def _to_worker(self, worker: int, message: m.Message) -> None:
        for who, peer in self.peers.items():
            if (peer.role, peer.number) == ("worker", worker):
                self._send(who, message, None)

    def tell_over(self, text: str) -> None:
        """Say to the workers of other machines that the run goes on no longer: that it is over, or why."""
        message: m.Message = m.Abort(text=text, worker=0) if text else m.Leave()
        for who, peer in self.peers.items():
            if peer.role == "worker" and peer.number >= self._here:
                self._send(who, message, None)

    def _welcome(self, hello: m.Hello, endpoints: tuple[str, ...] | None) -> m.Welcome:
        return m.Welcome(
            generation=self._generation,
            beat=self._limits.beat,
            epoch=self._members.epoch,
            members=tuple(sorted(self._members.living)),
            servers=self.endpoints if endpoints is None else endpoints,
            began=hello.role == "worker" and hello.number in self._late,
        )


def _where(pulse: Pulse) -> str:
    return f"in step {pulse.step}, phase {pulse.phase}" if pulse.phase else "before its first step"
