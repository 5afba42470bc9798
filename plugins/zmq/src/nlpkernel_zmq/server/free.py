"""A shard whose workers push windows each for itself (`async`, `ssp`): each is applied when its turn comes, and whoever
pushed it gets the parameters as they are then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from torch import Tensor

from nlpkernel_zmq.machines.rounds import Verdict
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.machines.windows import Windows
from nlpkernel_zmq.server.shard import Shard
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame


@attrs.define
class _Pushed:
    """A window as far as it came. worker: who pushed it last."""

    worker: int = -1
    pieces: dict[int, Tensor] = attrs.field(factory=dict)
    end: m.End | None = None


class FreeShard(Shard):
    """See the module. limit: windows that may be under way at once: after a server was started again, all that its
    workers keep."""

    limit = 4096

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._windows = Windows(0, 0)
        #: By window, and by the process that pushed it.
        self._pushed: dict[int, dict[int, _Pushed]] = {}
        self._numbers: dict[int, int] = {}
        #: What the coordinator decided on windows that are not applied yet.
        self._decisions: dict[int, Decision] = {}
        self._last_of: dict[int, m.Release] = {}
        #: The window whose gradient the optimizer would read now.
        self._added = -1

    @property
    def next(self) -> int:
        """The number of the update that is made next."""
        return self._windows.next

    def missing(self) -> tuple[str, ...]:
        """The coordinator knows who has which window."""
        return ()

    def say_again(self) -> None:
        """Those that are numbered first, in the order of their numbers."""
        self._windows.renumber()
        self._decisions.clear()
        # Of what is said, some may be forgotten at once.
        said = dict(self.told)
        known = sorted((self._numbers.get(window, -1), window) for window in said)
        # Those that have no number come last.
        for number, window in sorted(known, key=lambda each: each[0] < 0):
            self._ready(window, said[window], number)

    def welcome(self, who: bytes) -> None:
        """Say again what became of its last window, with the parameters as they are now."""
        session = self.sessions.get(who)
        last = None if session is None else self._last_of.get(session.worker)
        if last is not None:
            self._give(who, attrs.evolve(last, placed=False))

    def forget(self, before: int) -> None:
        """No shard will ask for an update before this number again."""
        for window in [window for window, number in self._numbers.items() if number < before]:
            del self._numbers[window]
            self.told.pop(window, None)

    def is_applied(self, round: int) -> bool:
        """Whether a window has been applied here."""
        return self._windows.is_applied(round)

    def applied(self) -> tuple[int, list[int]]:
        """All windows before the first number have been applied, and these."""
        return self._windows.floor, sorted(self._windows.applied)

    def _start(self, number: int, facts: Mapping[str, Any]) -> None:
        super()._start(number, facts)
        floor = facts.get("floor", facts.get("step", 0))
        self._windows = Windows(
            self._rounds.chunks, self.limit, next=number, floor=floor, applied=set(facts.get("applied", ()))
        )
        self._pushed, self._decisions, self._last_of, self._added = {}, {}, {}, -1
        self._numbers = dict(facts.get("numbers", ()))

    def _facts(self) -> Mapping[str, Any]:
        floor, applied = self.applied()
        return {"floor": floor, "applied": applied, "numbers": [list(each) for each in self._numbers.items()]}

    def _push(self, who: bytes, push: m.Push, payload: memoryview | None) -> None:
        chunk = self._piece(push)
        self._one_share(push.share, push.of)
        source = self._gradient(who, push, chunk, payload)
        if self._known(who, self._windows.push(push.round, chunk, self._from(who)), push.round):
            return
        self._at(who, push.round).pieces[chunk] = source
        self._tell_if_complete(push.round)

    def _end(self, who: bytes, end: m.End) -> None:
        self._check_end(end)
        self._one_share(end.share, end.of)
        verdict = self._windows.end(end.round, end.empty, self._from(who))
        if self._known(who, verdict, end.round, end=True):
            return
        self._at(who, end.round).end = end
        self._tell_if_complete(end.round)

    def commit(self, decision: Decision, epoch: int, owners: tuple[int, ...]) -> None:
        """A window has its number; it is applied when all before it have been."""
        if not self.began or self._windows.is_applied(decision.round):
            return
        self._decisions[decision.round] = decision
        self._windows.number(decision.round, decision.number)
        while (window := self._windows.due()) is not None:
            self._apply(window, epoch)

    def _apply(self, window: int, epoch: int) -> None:
        pushed = self._pushed[window][self._windows.source(window)]
        decision, end, model = self._decisions.pop(window), pushed.end, self.model
        assert end is not None
        if decision.finite and not end.empty:
            if self._added != window:
                self._add(window)
            model.step(decision.norm, end.factor)
            self._updates += 1
        self._added = -1
        wanted = {each.worker: each.end for each in self._pushed.pop(window).values() if each.end is not None}
        self._windows.commit(window)
        self.step += 1
        self._numbers[window] = decision.number
        self._write()
        release = attrs.evolve(self._release(decision, [end], epoch, ()), arena=None)
        for who, session in list(self.sessions.items()):
            said = wanted.get(session.worker)
            if said is not None:
                self._last_of[session.worker] = release
                placed = session.memory is not None and said.reply >= 0
                self._give(who, attrs.evolve(release, placed=placed), said.reply)
        self.moved()

    def _give(self, who: bytes, release: m.Release, reply: int = -1) -> None:
        """The parameters are copied, since the next update changes them."""
        session = self.sessions.get(who)
        if session is None:
            return
        memory, values = session.memory, self.model.memory.tensor
        if release.placed and memory is not None:
            memory.tensor[reply : reply + values.numel()].copy_(values)
            self._send(who, release, None)
            return
        self._send(who, release, None)
        self._give_frames(who, release.round, values.clone())

    def _tell_if_complete(self, window: int) -> None:
        if not self._windows.complete(window):
            return
        if window not in self.told:
            self.told[window] = self._add(window)
        # One that was told before this server was started again keeps its decision.
        self._ready(window, self.told[window], self._numbers.get(window, -1))

    def _add(self, window: int) -> Told:
        """Put a window's gradient where the optimizer reads it; what there is to tell of it."""
        pushed, model = self._pushed[window][self._windows.source(window)], self.model
        end = pushed.end
        assert end is not None
        self._added = window
        for chunk in range(self._rounds.chunks):
            model.add(chunk, [] if end.empty else [pushed.pieces[chunk]])
        return model.tell(model.everything if end.empty else set(end.absent), end.scale)

    def _from(self, who: bytes) -> int:
        return self.sessions[who].incarnation

    def _at(self, who: bytes, window: int) -> _Pushed:
        session = self.sessions[who]
        made = _Pushed(worker=session.worker)
        return self._pushed.setdefault(window, {}).setdefault(session.incarnation, made)

    def _known(self, who: bytes, verdict: Verdict, window: int, *, end: bool = False) -> bool:
        if verdict is Verdict.WRONG or verdict is Verdict.EARLY:
            raise BadFrame("field", f"window {window} is not cut so, or is one too many")
        if verdict is Verdict.KNOWN and end and self._windows.is_applied(window):
            last = self._last_of.get(self.sessions[who].worker)
            if last is None or last.round != window:
                # Somebody else has done it, or a server that is no more has told; whoever asks goes on from here.
                number = self._numbers.get(window, max(0, self.next - 1))
                decision = Decision(window, 0.0, True, number)
                ends = [m.End(round=window, share=0, of=1, step=window, empty=True)]
                last = attrs.evolve(self._release(decision, ends, 0, ()), arena=None)
            self._give(who, attrs.evolve(last, placed=False))
        return verdict is Verdict.KNOWN

    def _one_share(self, share: int, of: int) -> None:
        if (share, of) != (0, 1):
            raise BadFrame("field", "a share of a window that is pushed as a whole")
