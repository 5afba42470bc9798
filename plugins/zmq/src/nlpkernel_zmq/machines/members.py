"""Who is in the run, and whose each share of a round is.

Every change of the members raises the epoch. The owners of a round are the members at its opening, in the order of
their numbers, one share each; a share whose owner is lost goes to the member with the fewest.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

import attrs


class Entry(enum.Enum):
    """How a worker may come in. JOINED: it is a member. BACK: the same process as before, whose connection was cut.
    NEWER: another process under the same number, which takes the place of the older one. FENCED: an older one."""

    JOINED = "joined"
    BACK = "back"
    NEWER = "newer"
    FENCED = "fenced"


@attrs.frozen
class Lease:
    """A share that another worker is to do."""

    round: int
    share: int
    worker: int


@attrs.define
class Members:
    """The workers of a run. living: worker to (order of arrival, incarnation)."""

    epoch: int = 0
    round: int = -1
    living: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    _owners: list[int] = attrs.field(factory=list)
    _there: dict[int, int] = attrs.field(factory=dict)
    _arrivals: int = 0
    _gone: set[tuple[int, int]] = attrs.field(factory=set)

    def join(self, worker: int, incarnation: int) -> Entry:
        """A worker says hello. A process that was replaced, or that was counted as lost, does not come back: it may
        hold gradients of weights that are no more."""
        if (worker, incarnation) in self._gone:
            return Entry.FENCED
        before = self.living.get(worker)
        if before is not None and before[1] == incarnation:
            return Entry.BACK
        if before is not None:
            self._gone.add((worker, before[1]))
        self._arrivals += 1
        self.living[worker] = (self._arrivals, incarnation)
        self.epoch += 1
        return Entry.JOINED if before is None else Entry.NEWER

    def is_current(self, worker: int, incarnation: int) -> bool:
        """Whether that process is the member of that number."""
        return worker in self.living and self.living[worker][1] == incarnation

    def lose(self, worker: int, incarnation: int) -> list[Lease]:
        """A member is gone, or has left; the shares that others do for it now."""
        if not self.is_current(worker, incarnation):
            return []
        del self.living[worker]
        self._gone.add((worker, incarnation))
        self.epoch += 1
        return self.leases()

    def leases(self) -> list[Lease]:
        """Give away the shares of the round at hand whose owners are gone or new. None while nobody is there."""
        made: list[Lease] = []
        if not self.living:
            return made
        for share, owner in enumerate(self._owners):
            if owner in self.living and self._was_there(owner):
                continue
            able = [worker for worker in self.living if self._was_there(worker)]
            if not able:
                return made
            heir = min(able, key=lambda worker: (self._owners.count(worker), worker))
            self._owners[share] = heir
            made.append(Lease(self.round, share, heir))
        return made

    def restore(self, round: int, owners: Iterable[int]) -> None:
        """Know the round at hand again, after the coordinator was started again: its owners are there once they say
        hello as those that took part."""
        self.round, self._owners, self._there = round, list(owners), {}

    def rejoin(self, worker: int, incarnation: int) -> None:
        """One that took part in the round at hand says hello to a coordinator that was started again."""
        self.join(worker, incarnation)
        if self.is_current(worker, incarnation):
            self._there[worker] = incarnation

    def open(self, round: int, but: Collection[int] = ()) -> tuple[int, ...]:
        """Begin a round; its owners: all members `but` these."""
        self.round = round
        self._owners = sorted(worker for worker in self.living if worker not in but)
        self._there = {worker: self.living[worker][1] for worker in self._owners}
        return tuple(self._owners)

    @property
    def owners(self) -> tuple[int, ...]:
        """Whose each share of the round at hand is."""
        return tuple(self._owners)

    def _was_there(self, worker: int) -> bool:
        """Whether it was a member when the round began: who came later has not got its weights."""
        return worker in self.living and self._there.get(worker) == self.living[worker][1]
