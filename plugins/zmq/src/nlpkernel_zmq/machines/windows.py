"""What a shard knows of windows that workers push each for itself (`async`, `ssp`): each applied once, in one order.

Each window is a round of one share. Several are under way at once; the coordinator numbers them as they become
complete, and all shards apply them in that order.
"""

from __future__ import annotations

import attrs

from nlpkernel_zmq.machines.rounds import Rounds, Verdict


@attrs.define
class Windows:
    """Those of one shard. next: the number of the update that is applied next. floor: all windows before this one have
    been applied, and so have those in `applied`. limit: windows that may be under way at once."""

    chunks: int
    limit: int
    next: int = 0
    floor: int = 0
    applied: set[int] = attrs.field(factory=set)
    _open: dict[int, dict[int, Rounds]] = attrs.field(factory=dict)
    _whole: dict[int, int] = attrs.field(factory=dict)
    _order: dict[int, int] = attrs.field(factory=dict)

    def push(self, window: int, chunk: int, source: int = 0) -> Verdict:
        """A piece came from one process. What two of them push of one window does not mix: the first that is whole
        counts."""
        rounds = self._of(window, source)
        if isinstance(rounds, Verdict):
            return rounds
        return self._seen(window, source, rounds.push(window, 0, 1, chunk))

    def end(self, window: int, empty: bool, source: int = 0) -> Verdict:
        """One process says that a window is whole."""
        rounds = self._of(window, source)
        if isinstance(rounds, Verdict):
            return rounds
        return self._seen(window, source, rounds.end(window, 0, 1, empty))

    def complete(self, window: int) -> bool:
        """Whether all of a window is there."""
        return window in self._whole

    def source(self, window: int) -> int:
        """Whose of a window that is complete counts."""
        return self._whole[window]

    def number(self, window: int, number: int) -> None:
        """The coordinator has numbered a window."""
        if number >= self.next:
            self._order[number] = window

    def renumber(self) -> None:
        """The coordinator may be another one, which numbers anew what no shard has applied. Of what has a number here
        nothing can have been applied: one before it is missing."""
        self._order.clear()

    def due(self) -> int | None:
        """The window to apply next, if it is there."""
        window = self._order.get(self.next)
        return window if window is not None and self.complete(window) else None

    def commit(self, window: int) -> None:
        """It has been applied, or left out for good."""
        assert window == self.due(), "windows are applied in the order of their numbers"
        del self._order[self.next], self._open[window], self._whole[window]
        self.next += 1
        self.applied.add(window)
        while self.floor in self.applied:
            self.applied.remove(self.floor)
            self.floor += 1

    def is_applied(self, window: int) -> bool:
        """Whether it has been applied."""
        return window < self.floor or window in self.applied

    def _seen(self, window: int, source: int, verdict: Verdict) -> Verdict:
        if self._open[window][source].complete:
            self._whole.setdefault(window, source)
        return verdict

    def _of(self, window: int, source: int) -> Rounds | Verdict:
        if self.is_applied(window):
            return Verdict.KNOWN
        if window < 0 or (source not in self._open.get(window, ()) and self._held >= self.limit):
            return Verdict.WRONG
        mine = self._open.setdefault(window, {})
        if source not in mine:
            mine[source] = Rounds(self.chunks, next=window)
        return mine[source]

    @property
    def _held(self) -> int:
        return sum(map(len, self._open.values()))
