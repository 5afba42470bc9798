"""What the driver asks of a cluster. Light: Ray itself is in `raycluster`, and tests have another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import attrs


class Lost(Exception):
    """A seat does not answer any more: its process, or its machine, is gone."""


@attrs.frozen
class Needs:
    """What one worker reserves: cores and GPUs, all on one machine."""

    cpus: int
    gpus: int

    def __str__(self) -> str:
        gpus = f" and {self.gpus} GPU{'' if self.gpus == 1 else 's'}" if self.gpus else ""
        return f"{self.cpus} core{'' if self.cpus == 1 else 's'}{gpus}"


class Seat(Protocol):
    """A place on a machine, with a `Hand` there."""

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the hand. The future raises Lost where the seat is gone."""


class Cluster(Protocol):
    """A cluster that the driver is connected to."""

    #: A line that says which.
    name: str

    def gpus(self) -> int:
        """GPUs in all."""

    def room(self, needs: Needs) -> int:
        """How many workers could have a seat now, at most: others may take it meanwhile."""

    def seats(
        self, number: int, needs: Needs, seconds: float, hurry: Callable[[], bool]
    ) -> Sequence[Seat] | None:
        """So many seats, close together; None where there are none within so many seconds, or `hurry` says so."""

    def release(self) -> None:
        """Give the seats back. What still runs there is ended."""

    def close(self) -> None:
        """Disconnect. A cluster that was started for this run is ended."""
