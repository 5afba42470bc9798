"""The one order of updates, and one decision for each: no shard applies a round before all have all of it."""

from __future__ import annotations

import math

import attrs


@attrs.frozen
class Decision:
    """What all shards do with a round: the norm of the whole gradient, whether it is applied, and which update it
    is."""

    round: int
    norm: float
    finite: bool
    number: int = -1


@attrs.frozen
class Told:
    """What a shard said of its part of a round: the square of the norm, and whether all of it is finite."""

    square: float
    finite: bool


@attrs.define
class Sequencer:
    """Decides once every one of `shards` has said that a round is complete there.

    A decision stands: a shard that comes back from a snapshot, and gets the same pushes again, gets the same decision.
    If the coordinator itself comes back, shards that are further say again what they said then (`ready`), and the
    decision is made anew of the same numbers.
    """

    shards: int
    _told: dict[int, dict[int, Told]] = attrs.field(factory=dict)
    _made: dict[int, Decision] = attrs.field(factory=dict)
    _durable: dict[int, int] = attrs.field(factory=dict)

    def ready(self, shard: int, round: int, told: Told) -> Decision | None:
        """A shard has all of a round; the decision, once there is one. Until then what it says last counts: a share
        that another worker did again may have other numbers (dropout). Raise ValueError where there is no such
        shard."""
        if not 0 <= shard < self.shards:
            raise ValueError(f"there is no shard {shard}")
        here = self._told.setdefault(round, {})
        made = self._made.get(round)
        if made is None:
            here[shard] = told
        if made is None and len(here) == self.shards:
            try:
                square = math.fsum(here[each].square for each in sorted(here))
            except OverflowError:
                # Finite numbers whose sum is not.
                square = math.inf
            finite = all(each.finite for each in here.values()) and math.isfinite(square)
            norm = math.sqrt(square) if square >= 0 else math.nan
            made = self._made[round] = Decision(round, norm, finite)
        return made

    def durable(self, shard: int, round: int) -> int:
        """A shard will never need a decision of a round before this one again. Returns how far that holds of all."""
        self._durable[shard] = max(round, self._durable.get(shard, 0))
        least = self.least
        for table in (self._told, self._made):
            for old in [each for each in table if each < least]:
                del table[old]
        return least

    @property
    def least(self) -> int:
        """No shard will need a decision of a round before this one again."""
        return min(self._durable.values()) if len(self._durable) == self.shards else 0

    def forget(self, round: int) -> None:
        """Nobody will ask for this one again."""
        self._told.pop(round, None)
        self._made.pop(round, None)

    def __len__(self) -> int:
        """Rounds that are remembered."""
        return len(self._told)
