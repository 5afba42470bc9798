"""The one order of windows that workers push each for itself: numbered as they become complete on all shards."""

from __future__ import annotations

import attrs

from nlpkernel_zmq.machines.sequencer import Decision, Sequencer, Told


@attrs.define
class Order:
    """Numbers windows for `shards`. next: the number of the next decision.

    After the coordinator was started again, shards say again what they said, with the numbers that they know, in the
    order of those, before they say anything new. So a decision that any shard acts on keeps its number.
    """

    shards: int
    next: int = 0
    _sequencer: Sequencer = attrs.field(init=False)
    _numbers: dict[int, int] = attrs.field(factory=dict)
    _durable: dict[int, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._sequencer = Sequencer(self.shards)

    def ready(self, shard: int, window: int, told: Told, number: int = -1) -> Decision | None:
        """A shard has all of a window, which it knows as update `number`; the decision, once there is one."""
        if number >= 0:
            self._numbers[window] = number
            self.next = max(self.next, number + 1)
        made = self._sequencer.ready(shard, window, told)
        if made is None:
            return None
        if window not in self._numbers:
            self._numbers[window] = self.next
            self.next += 1
        return attrs.evolve(made, number=self._numbers[window])

    def durable(self, shard: int, number: int) -> None:
        """A shard will never need an update before this number again."""
        self._durable[shard] = max(number, self._durable.get(shard, 0))
        for window in [window for window, made in self._numbers.items() if made < self.least]:
            del self._numbers[window]
            self._sequencer.forget(window)

    @property
    def least(self) -> int:
        """No shard will need an update before this number again."""
        return min(self._durable.values()) if len(self._durable) == self.shards else 0

    def __len__(self) -> int:
        """Windows that are remembered."""
        return len(self._sequencer)
