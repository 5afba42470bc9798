"""The workers of one start: who sits where, and the environment that tells each of them. Light."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from nlpkernel_ray.cluster import Seat
from nlpkernel_ray.hand import VISIBLE

_LOOPBACK = "127.0.0.1"


@attrs.frozen(kw_only=True)
class Worker:
    """One of them. local: its number among those of its machine, of which there are `locals`. visible: the variables
    that show it the GPUs of all workers of its machine, in their order."""

    rank: int
    local: int
    locals: int
    host: str
    address: str
    visible: Mapping[str, str]
    seat: Seat

    def __str__(self) -> str:
        return f"worker {self.rank} on {self.host} ({self.address})"


@attrs.frozen(kw_only=True)
class Crew:
    """All of them, in the order of their numbers."""

    workers: tuple[Worker, ...]
    nodes: int

    @classmethod
    def of(cls, seats: Sequence[Seat], facts: Sequence[Mapping[str, Any]]) -> Crew:
        """Those of one machine have numbers in a row; the machine of the first seat comes first."""
        nodes: dict[str, list[int]] = {}
        for index, fact in enumerate(facts):
            nodes.setdefault(str(fact["node"]), []).append(index)
        workers: list[Worker] = []
        for members in nodes.values():
            visible = _together([facts[index]["visible"] for index in members])
            for local, index in enumerate(members):
                workers.append(
                    Worker(
                        rank=len(workers),
                        local=local,
                        locals=len(members),
                        host=str(facts[index]["host"]),
                        address=str(facts[index]["address"]),
                        visible=visible,
                        seat=seats[index],
                    )
                )
        return cls(workers=tuple(workers), nodes=len(nodes))

    @property
    def address(self) -> str:
        """Where the first worker listens."""
        return _LOOPBACK if self.nodes == 1 else self.workers[0].address

    def environment(self, port: int, run_id: str, attempt: int) -> Callable[[Worker], dict[str, str]]:
        """What tells a worker its place, by the variables that torchrun gives."""

        def of(worker: Worker) -> dict[str, str]:
            return {
                "RANK": str(worker.rank),
                "WORLD_SIZE": str(len(self.workers)),
                "LOCAL_RANK": str(worker.local),
                "LOCAL_WORLD_SIZE": str(worker.locals),
                "MASTER_ADDR": self.address,
                "MASTER_PORT": str(port),
                # Torchrun's variables are a worker's way to know its place; who gives them is to be told rightly.
                "NLPKERNEL_LAUNCHER": "Ray",
                "TORCHELASTIC_RUN_ID": run_id,
                "TORCHELASTIC_RESTART_COUNT": str(attempt),
                # The first worker listens itself.
                "TORCHELASTIC_USE_AGENT_STORE": "False",
                "PYTHONUNBUFFERED": "1",
                **worker.visible,
            }

        return of


def _together(each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The first GPU of each worker of a machine, for all of them: a worker takes the one of its number, and they may
    reach each other's memory."""
    return {
        name: ",".join(visible[name].partition(",")[0] for visible in each)
        for name in VISIBLE
        if all(visible.get(name) for visible in each)
    }
