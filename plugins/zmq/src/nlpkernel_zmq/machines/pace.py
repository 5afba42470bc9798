"""Which worker the others wait for under a bound on staleness (`ssp`), and for how much of their time."""

from __future__ import annotations

from collections.abc import Collection

import attrs

#: Seconds between two looks at first, and at most.
FIRST, MOST = 30.0, 3600.0
#: Of the time of the others: less than this is not worth a word.
SHARE = 0.1


@attrs.frozen
class Slowest:
    """Who was waited for most. share: of the time of all others, over these seconds."""

    worker: int
    share: float
    seconds: float


@attrs.define
class Pace:
    """Asked in every turn, says now and then who held the others back. What was found is said, and then looked for half
    as often, so that a run of days is not full of it; where nothing was found, the next look is sooner again."""

    every: float = FIRST
    _since: float | None = None
    _last: float = 0.0
    _waiting: int = 0
    _slowest: tuple[int, ...] = ()
    _waited: dict[int, float] = attrs.field(factory=dict)
    _others: int = 0
    #: Seconds that the others had together.
    _had: float = 0.0

    def turn(self, now: float, waiting: int, slowest: Collection[int], others: int) -> Slowest | None:
        """So many workers wait, from now on, for the slowest. others: how many can wait at most. What is to be said of
        the time since the last look, where it is over and one was waited for."""
        if self._since is None:
            self._since = self._last = now
        for worker in self._slowest:
            self._waited[worker] = self._waited.get(worker, 0.0) + self._waiting * (now - self._last)
        self._had += self._others * (now - self._last)
        self._others = others
        self._last, self._waiting, self._slowest = now, waiting, tuple(slowest) if waiting else ()
        seconds = now - self._since
        if seconds < self.every:
            return None
        worker = max(self._waited, key=lambda each: self._waited[each], default=-1)
        share = self._waited.get(worker, 0.0) / self._had if self._had else 0.0
        self._since, self._waited, self._had = now, {}, 0.0
        if share < SHARE:
            self.every = max(FIRST, self.every / 2)
            return None
        self.every = min(MOST, self.every * 2)
        return Slowest(worker, share, seconds)
