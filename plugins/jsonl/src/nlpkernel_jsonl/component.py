"""The component `jsonl`: events for machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.bus import Bus
    from nlpkernel.context import Run
    from nlpkernel.events import Event
    from nlpkernel_jsonl.writing import LineFile


@component
class Jsonl:
    """Every event of the run as a line of JSON, appended to `events.jsonl` in its folder.

    Each line is an object with "event" (the name of the event's class) and the event's fields. A number that is not
    finite is written as "NaN", "Infinity" or "-Infinity", one that was not computed as null.
    """

    path: str = setting(
        default="events.jsonl",
        min_length=1,
        help="the file, from the run's folder; an absolute path is taken as it is",
    )
    step_events: bool = setting(
        default=False, help="write StepCompleted too: reads the device in every step, which waits for it"
    )
    flush: float = setting(
        default=0.0,
        ge=0,
        unit="seconds",
        help="how long lines may wait in memory; 0: each is written at once",
    )

    _file: Any = attrs.field(init=False, default=None)

    @hookimpl
    def subscribe(self, run: Run, bus: Bus) -> None:
        """Open the file and listen to every class of events. Raise UsageError (JSL001) where it cannot be opened."""
        from nlpkernel.errors import Place, UsageError, fail
        from nlpkernel.events import StepCompleted
        from nlpkernel_jsonl.encoding import line_of
        from nlpkernel_jsonl.kinds import kinds
        from nlpkernel_jsonl.writing import LineFile

        path = run.folder / self.path
        try:
            file = self._file = LineFile(path, interval=self.flush)
        except OSError as error:
            raise fail(
                UsageError, "JSL001", f"events cannot be written: {error.strerror}", place=Place(str(path))
            ) from error
        for kind in kinds():
            if kind is not StepCompleted or self.step_events:
                bus.on(kind, _on_first_worker(run, file, line_of(kind)))

    @hookimpl
    def close(self, run: Run) -> None:
        """Write what waits and close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def _on_first_worker(run: Run, file: LineFile, line_of: Callable[[Event], str]) -> Callable[[Event], None]:
    # A worker learns its rank when the group is opened, which is after it was asked to subscribe.
    def told(event: Event) -> None:
        if run.rank == 0:
            file.append(line_of(event))

    return told
