"""Points at which every worker says something and gets what all said."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs


@attrs.define
class Meetings:
    """Open meetings by key. A key is used once; who asks again for one that is over gets the same answer: of those
    whose key begins so (`always`: the first ones of a run, for who comes into it later) for ever, else of the last.
    most: at how many a member may wait at a time."""

    keep: int = 64
    most: int = 8
    always: str = "-1:"
    _open: dict[str, dict[int, bytes]] = attrs.field(factory=dict)
    _over: dict[str, dict[int, bytes]] = attrs.field(factory=dict)

    def say(
        self, key: str, worker: int, value: bytes, members: Collection[int]
    ) -> Mapping[int, bytes] | None:
        """A member says `value`; what all said, once all have. Raise ValueError where it waits at too many."""
        if key in self._over:
            return self._over[key]
        if key not in self._open and sum(worker in said for said in self._open.values()) >= self.most:
            raise ValueError(f"worker {worker} waits at {self.most} meetings already")
        self._open.setdefault(key, {})[worker] = value
        return self._close(key, members)

    def changed(self, members: Collection[int]) -> dict[str, Mapping[int, bytes]]:
        """The members are others now: meetings for which nobody is missing any more."""
        return self.changed_by(lambda key: members)

    def changed_by(self, members: Callable[[str], Collection[int]]) -> dict[str, Mapping[int, bytes]]:
        """The same, with the members of each."""
        return {
            key: found for key in list(self._open) if (found := self._close(key, members(key))) is not None
        }

    def missing(self, worker: int, members: Callable[[str], Collection[int]]) -> list[int]:
        """For whom a member waits, at all meetings that are open."""
        waits = [set(members(key)) - said.keys() for key, said in self._open.items() if worker in said]
        return sorted(set().union(*waits))

    def __len__(self) -> int:
        """Meetings that are open."""
        return len(self._open)

    def _close(self, key: str, members: Collection[int]) -> Mapping[int, bytes] | None:
        said = self._open[key]
        if not members or not said.keys() >= set(members):
            return None
        del self._open[key]
        self._over[key] = {worker: said[worker] for worker in sorted(members)}
        others = [each for each in self._over if not each.startswith(self.always)]
        for old in others[: -self.keep]:
            del self._over[old]
        return self._over[key]
