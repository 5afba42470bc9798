"""The slot `checkpoint`: where versions of a run are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.state import Snapshot, VersionInfo


class Store(Protocol):
    """Versions of one run. A version is complete or it is not listed."""

    def save(self, snapshot: Snapshot) -> VersionInfo:
        """Put a snapshot away, from every worker into one version; return when it is committed."""

    def load(self, reference: str | None = None) -> Snapshot:
        """The version named `reference`, or the newest. Raise CheckpointError where it is damaged or missing."""

    def list(self) -> Sequence[VersionInfo]:
        """Complete versions, oldest first."""

    def verify(self, reference: str) -> Sequence[str]:
        """What is wrong with a version: a line each, naming file and digests. Empty: nothing."""

    def close(self) -> None:
        """Wait for what is still being written."""


@hook("pick")
def open_store(run: Run, folder: Path) -> Store:  # type: ignore[empty-body]
    """Open the versions of the run in `folder` (the run's own folder), or start with none. When to save is said
    by this component's `decide`."""


POINT = Point(
    name="checkpoint",
    slot=True,
    must=("open_store",),
    may=("decide",),
    help="where versions of a run are kept",
)
