"""The component, as a plan sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import Place, UsageError, fail
from nlpkernel.events import Evaluated, Event, Logged, RunEnded, RunStarted

if TYPE_CHECKING:
    from nlpkernel.bus import Bus
    from nlpkernel.context import Run
    from nlpkernel_experiment.entry import Entry

_E = TypeVar("_E", bound=Event)


@component
class Experiment:
    """A book of runs as files: a folder for each run, with its plan, its state and its metrics.

    `nlpkernel experiments` shows the runs of a book, and the settings in which they differ.
    """

    folder: str = setting(
        default="experiments", min_length=1, help="the book, from the folder that holds the run's own"
    )
    interval: float = setting(
        default=5.0,
        ge=0,
        unit="seconds",
        help="how long the progress of a run may be known to nobody else, should it be killed; 0: no longer than to "
        "the next log",
    )

    _entry: Entry | None = attrs.field(init=False, default=None)

    @hookimpl
    def subscribe(self, run: Run, bus: Bus) -> None:
        """Make the book, and hear how the run goes. Raise UsageError (EXP001) where it cannot be made."""
        if run.rehearsal:
            return
        from nlpkernel_experiment.entry import Entry

        root = run.folder.parent / self.folder
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise fail(
                UsageError,
                "EXP001",
                f"the book of runs cannot be made: {error.strerror}",
                place=Place(str(root)),
                owner="nlpkernel-plugin-experiment",
            ) from error

        def started(event: RunStarted) -> None:
            # A worker learns its rank when the group is opened, which is after `subscribe`.
            if run.rank == 0:
                self._entry = Entry(root, event, self.interval)

        bus.on(RunStarted, started)
        bus.on(Logged, self._on(Entry.logged))
        bus.on(Evaluated, self._on(Entry.evaluated))
        bus.on(RunEnded, self._on(Entry.ended))

    def _on(self, take: Callable[[Entry, _E], None]) -> Callable[[_E], None]:
        """For the worker that has an entry. One that could not be made was told of when it could not."""

        def told(event: _E) -> None:
            if self._entry is not None:
                take(self._entry, event)

        return told

    @hookimpl
    def close(self) -> None:
        """Let go of the entry."""
        if self._entry is not None:
            entry, self._entry = self._entry, None
            entry.close()
