"""A cluster without Ray: hands in this process, whose workers are small scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nlpkernel_ray.cluster import Lost, Needs
from nlpkernel_ray.hand import Hand
from nlpkernel_ray.work import Work


class FakeHand(Hand):
    """A worker is `script`, which finds its number and start in the variables `rank` and `attempt`."""

    def __init__(self, script: str, facts: Mapping[str, Any]) -> None:
        super().__init__()
        self._script, self._facts = script, facts

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), **self._facts}

    def command(self, words: Sequence[str]) -> list[str]:
        begin = "import os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
        begin += "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        return [sys.executable, "-S", "-c", begin + self._script, *words]


class FakeSeat:
    def __init__(self, hand: Hand, pool: ThreadPoolExecutor) -> None:
        self.hand, self._pool = hand, pool
        self.lost = False

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        def call() -> Any:
            if self.lost:
                raise Lost("its machine is gone")
            return getattr(self.hand, method)(*arguments)

        return self._pool.submit(call)


class FakeCluster:
    """rooms: how many workers there is room for, at each time that seats are asked for; the last one stays."""

    name = "the cluster"

    def __init__(
        self, script: str, *, rooms: Sequence[int] = (99,), facts: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.script, self._rooms, self._facts = script, list(rooms), facts
        self.pool = ThreadPoolExecutor(32)
        self.sat: list[FakeSeat] = []
        self.asked: list[int] = []
        self.starts = 0

    def gpus(self) -> int:
        return 0

    def room(self, needs: Needs) -> int:
        return self._rooms[0]

    def seats(
        self, number: int, needs: Needs, seconds: float, hurry: Callable[[], bool]
    ) -> Sequence[FakeSeat] | None:
        self.asked.append(number)
        if number > self._rooms[0]:
            return None
        if len(self._rooms) > 1:
            self._rooms.pop(0)
        self.starts += 1
        facts = self._facts or [{}] * number
        self.sat = [FakeSeat(FakeHand(self.script, facts[index]), self.pool) for index in range(number)]
        return self.sat

    def release(self) -> None:
        for seat in self.sat:
            seat.hand.end()
        self.sat = []

    def close(self) -> None:
        self.release()
        self.pool.shutdown()


def work(folder: Any) -> Work:
    """Work in a folder."""
    return Work(
        name="tiny",
        words=("run", "plan.toml"),
        files={str(folder / "plan.toml"): b"# a plan\n"},
        folder=str(folder),
        runs=str(folder / "runs"),
    )
