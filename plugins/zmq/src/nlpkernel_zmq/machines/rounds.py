"""What a shard knows of the pushes that reach it: each piece of each share once, each round once, in order.

A round is one update. Its gradient is the sum over its shares, and the shard's part of each is cut into `chunks`. Who
pushes a piece does not matter: the first of its kind counts, whether it comes from the owner of the share, from the
same worker again because an acknowledgement was lost, or from another one that took over a share. So nothing has to be
known of connections or of incarnations for a piece to count once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs


class Verdict(enum.Enum):
    """What becomes of a message. TAKE: it counts. KNOWN: it has counted before; say so again. EARLY: a round before it
    is missing here, as after a restart. WRONG: it contradicts what is known, and its sender is in error."""

    TAKE = "take"
    KNOWN = "known"
    EARLY = "early"
    WRONG = "wrong"


@attrs.define
class _Share:
    pieces: set[int] = attrs.field(factory=set)
    ended: bool = False
    empty: bool = False

    def has(self, chunk: int) -> bool:
        return self.empty or chunk in self.pieces


@attrs.define
class Rounds:
    """The rounds of one shard. next: the one that is applied next; all before it are. chunks: pieces of a share."""

    chunks: int
    next: int = 0
    _of: int = 0
    _shares: dict[int, _Share] = attrs.field(factory=dict)

    @property
    def of(self) -> int:
        """Shares of the round at hand; 0: none has come yet."""
        return self._of

    def push(self, round: int, share: int, of: int, chunk: int) -> Verdict:
        """A piece came."""
        verdict = self._known(round, share, of)
        if verdict is not Verdict.TAKE:
            return verdict
        if not 0 <= chunk < self.chunks:
            return Verdict.WRONG
        mine = self._shares.setdefault(share, _Share())
        if mine.empty:
            return Verdict.WRONG
        if chunk in mine.pieces:
            return Verdict.KNOWN
        mine.pieces.add(chunk)
        self._of = of
        return Verdict.TAKE

    def end(self, round: int, share: int, of: int, empty: bool) -> Verdict:
        """A share is said to be whole, or to have nothing in it."""
        verdict = self._known(round, share, of)
        if verdict is not Verdict.TAKE:
            return verdict
        mine = self._shares.setdefault(share, _Share())
        if mine.ended:
            return Verdict.KNOWN if mine.empty == empty else Verdict.WRONG
        if empty and mine.pieces:
            return Verdict.WRONG
        # Its pieces may still be missing: those that came while the round was early have to come again.
        mine.ended, mine.empty = True, empty
        self._of = of
        return Verdict.TAKE

    def full(self, chunk: int) -> bool:
        """Whether that piece of every share is there, so that it can be added up."""
        return self._of > 0 and all(
            share in self._shares and self._shares[share].has(chunk) for share in range(self._of)
        )

    def present(self, chunk: int) -> Iterator[int]:
        """The shares that have something to add there, in their order."""
        for share in range(self._of):
            if share in self._shares and chunk in self._shares[share].pieces:
                yield share

    def whole(self, share: int) -> bool:
        """Whether all of a share is there."""
        mine = self._shares.get(share)
        return mine is not None and mine.ended and (mine.empty or len(mine.pieces) == self.chunks)

    @property
    def complete(self) -> bool:
        """Whether the round can be applied."""
        return self._of > 0 and all(map(self.whole, range(self._of)))

    def commit(self) -> None:
        """The round has been applied, or left out for good."""
        assert self.complete, "a round is applied once all of it is there"
        self.next += 1
        self.restart()

    def restart(self) -> None:
        """Forget what came of the round at hand."""
        self._of = 0
        self._shares.clear()

    def _known(self, round: int, share: int, of: int) -> Verdict:
        if round < self.next:
            return Verdict.KNOWN
        if round > self.next:
            return Verdict.EARLY
        if not 0 <= share < of or (self._of and of != self._of):
            return Verdict.WRONG
        return Verdict.TAKE
