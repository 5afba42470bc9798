"""What a shard may have to have again once a worker is gone: made safe in time, or found to be lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from nlpkernel_zmq.machines.keepers import Keepers, Lost, Made, Process
from nlpkernel_zmq.machines.leases import Leases
from nlpkernel_zmq.machines.members import Members
from nlpkernel_zmq.machines.order import Order
from nlpkernel_zmq.machines.sequencer import Decision


@attrs.define
class Again:
    """See the module; part of the coordinator, whose members, order and leases it looks at. `keep` tells all shards
    that a snapshot is due once all updates before a number are made. unkept: the last such number; 0: none."""

    members: Members
    order: Order
    leases: Leases | None
    keep: Callable[[int], None]
    keepers: Keepers = attrs.field(factory=Keepers)
    unkept: int = 0
    #: Workers that have done their part and end; windows whose workers are lost.
    _left: set[Process] = attrs.field(factory=set)
    _abandoned: set[int] = attrs.field(factory=set)

    def leaves(self, process: Process) -> None:
        """A worker has done its part, and ends."""
        self._left.add(process)
        self.gone(process[0])

    def abandon(self, window: int) -> None:
        """The worker of a window is lost."""
        self._abandoned.add(window)

    def gone(self, worker: int) -> None:
        """A worker is gone, and what it kept: that is made safe. The first one is not gone before the run is over, or
        begins again."""
        number = self.members.round if self.leases is None else self.order.next
        if worker and number > 0:
            self._make_safe(number)

    def ready(self, shard: int, round: int, number: int) -> None:
        """A shard has all of a round, which it knows as update `number` (-1: it does not)."""
        self.keepers.ready(shard, round)
        if number >= 0 and self.leases is not None:
            # Unless more is known.
            self.keepers.made(number, Made(round, {0: None}))

    def decided(self, decision: Decision, owners: Mapping[int, int | None]) -> None:
        """Remember who pushed what is decided on. owners: of a round of all workers."""
        if self.leases is None:
            self._decided_of_all(decision, owners)
            return
        living = self.members.living
        holders = [
            (worker, living[worker][1])
            for worker, window in self.leases.held.items()
            if window == decision.round and worker in living
        ]
        known = bool(holders) or decision.round in self._abandoned
        self.keepers.made(decision.number, Made(decision.round, {0: holders if known else None}))
        if known and not holders:
            # All of it had come before its worker was lost.
            self._make_safe(decision.number + 1)
        self._abandoned.discard(decision.round)

    def _decided_of_all(self, decision: Decision, owners: Mapping[int, int | None]) -> None:
        shares = {
            share: None if incarnation is None else [(worker, incarnation)]
            for share, (worker, incarnation) in enumerate(owners.items())
        }
        heirs: tuple[Process, ...] = ()
        if self.members.round == decision.round:
            living = self.members.living
            heirs = tuple((worker, living[worker][1]) for worker in self.members.owners if worker in living)
        self.keepers.made(decision.number, Made(decision.round, shares, heirs))

    def stands(self, shard: int, number: int) -> list[Lost]:
        """A shard stands before this update; what of it comes from nobody any more."""
        return self.keepers.looks(shard, number, self._lives, self._comes if shard == 0 else _nobody)

    def _make_safe(self, number: int) -> None:
        self.unkept = max(self.unkept, number)
        self.keep(self.unkept)

    def _lives(self, process: Process) -> bool:
        return process not in self._left and self.members.is_current(*process)

    def _comes(self, window: int) -> bool:
        """Whether somebody computes a window, or is free to, where this coordinator gives out again what it lost."""
        if self.leases is None:
            return True
        held = self.leases.held
        return window in held.values() or any(worker not in held for worker in self.leases.clocks)


def _nobody(round: int) -> bool:
    return False
