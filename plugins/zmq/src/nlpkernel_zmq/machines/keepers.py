"""Who can send again what led to each update, and which shard asks for it in vain.

A shard that is started again goes back to its snapshot, and gets from there on what workers keep. What a worker kept
that is gone comes from nobody: then the shard would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs

#: A process: the worker's number, and its incarnation.
Process = tuple[int, int]


@attrs.frozen
class Made:
    """An update. round: the round, or the window. shares: by number, the processes that pushed each; None: unknown,
    since the coordinator was started again. heirs: by number, who was to do it once its owner was gone."""

    round: int
    shares: Mapping[int, Collection[Process] | None]
    heirs: tuple[Process, ...] = ()


@attrs.frozen
class Lost:
    """A share that a shard has to have again, and whose worker is gone. heir: the worker to ask whether it did it; -1:
    there is none of that time."""

    round: int
    share: int
    heir: int = -1


@attrs.define
class Keepers:
    """See the module. patience: how often a shard has to be seen where it stands, so that all that was under way has
    come; longer: the same, where it is not known who pushed what."""

    patience: int = 8
    longer: int = 60
    _made: dict[int, Made] = attrs.field(factory=dict)
    #: By shard, the rounds that it has all of since it said hello, and where it was seen how often.
    _ready: dict[int, set[int]] = attrs.field(factory=dict)
    _seen: dict[int, tuple[int, int]] = attrs.field(factory=dict)

    def made(self, number: int, made: Made) -> None:
        """An update was decided on. The first that is known of it counts."""
        before = self._made.get(number)
        if before is None or None in before.shares.values():
            self._made[number] = made

    def forget(self, before: int) -> None:
        """No shard will ask for an update before this number again."""
        for number in [each for each in self._made if each < before]:
            round = self._made.pop(number).round
            for ready in self._ready.values():
                ready.discard(round)

    def hello(self, shard: int) -> None:
        """A shard says hello: it may have been started again."""
        self._ready[shard] = set()
        self._seen.pop(shard, None)

    def ready(self, shard: int, round: int) -> None:
        """A shard has all of a round."""
        self._ready.setdefault(shard, set()).add(round)

    def looks(
        self,
        shard: int,
        number: int,
        lives: Callable[[Process], bool],
        comes: Callable[[int], bool] = lambda round: False,
    ) -> list[Lost]:
        """A shard stands before an update; what of it comes from nobody. `comes`: whether somebody does that round, or
        is about to, where nobody knows who pushed it."""
        made = self._made.get(number)
        if made is None or made.round in self._ready.get(shard, ()):
            self._seen.pop(shard, None)
            return []
        lost, patience = [], self.patience
        for share, processes in made.shares.items():
            if processes is None:
                gone, patience = not comes(made.round), self.longer
            else:
                gone = not any(map(lives, processes))
            if gone:
                living = [each for each in (*made.heirs[share : share + 1], *made.heirs) if lives(each)]
                lost.append(Lost(made.round, share, living[0][0] if living else -1))
        before, times = self._seen.get(shard, (number, 0))
        times = (times if before == number else 0) + 1 if lost else 0
        self._seen[shard] = (number, times)
        return lost if times >= patience else []

    def __len__(self) -> int:
        """Updates that are remembered."""
        return len(self._made)
