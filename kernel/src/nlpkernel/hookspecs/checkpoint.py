"""The slot `checkpoint`: where versions of a run are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.state import Saved, Snapshot, VersionInfo


class Store(Protocol):
    """Versions of one run. A version is complete or it is not listed."""

    def save(self, snapshot: Snapshot) -> None:
        """Take a snapshot, which may change once this returns, and make a version of it, from every worker into one;
        `settle` tells what became of it. While one is being written, a second save waits."""

    def settle(self, *, wait: bool = False) -> Sequence[Saved]:
        """What became of saves since this was asked last, in their order; with `wait`, of all of them. Raise
        CheckpointError where one failed and the store is to end the run for it."""

    def load(self, reference: str | None = None) -> Snapshot:
        """The version named `reference`, or the newest, with its name. Raise CheckpointError where it is damaged or
        missing."""

    def list(self) -> Sequence[VersionInfo]:
        """Complete versions, oldest first."""

    def verify(self, reference: str) -> Sequence[str]:
        """What is wrong with a version: a line each, naming file and digests. Empty: nothing."""

    def close(self) -> None:
        """Wait for what is still being written."""


@hook("pick")
def open_store(run: Run, folder: Path, write: bool) -> Store:  # type: ignore[empty-body]
    """Open the versions of the run in `folder` (the run's own folder), or start with none. `write`: this process owns
    the run, so that it may save, rotate and clean up; otherwise it only reads beside one that may. When to save is
    said by this component's `decide`."""


POINT = Point(
    name="checkpoint",
    slot=True,
    free=True,
    must=("open_store",),
    may=("decide",),
    help="where versions of a run are kept",
)
