"""The plain view: a line for each fact, fit for pipes, files and logs of CI systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nlpkernel.events import (
    Decided,
    Evaluated,
    Event,
    Logged,
    Notice,
    ObserverDetached,
    RunEnded,
    RunStarted,
    VersionSaved,
    Working,
)
from nlpkernel_console import lines
from nlpkernel_console.humane import duration
from nlpkernel_console.output import Output
from nlpkernel_console.standing import Standing


class PlainView:
    """Writes lines. `every`: seconds between two lines of one piece of long work. `quiet`: warnings only."""

    def __init__(self, output: Output, *, every: float, quiet: bool) -> None:
        self._output, self._every, self._quiet = output, every, quiet
        self._standing = Standing()
        self._works: dict[str, _Work] = {}

    def handlers(self) -> Mapping[type[Event], Callable[[Any], None]]:
        """What to subscribe to."""
        warnings: dict[type[Event], Callable[[Any], None]] = {
            Notice: self._notice,
            ObserverDetached: self._detached,
        }
        if self._quiet:
            return warnings
        return {
            **warnings,
            Working: self._working,
            RunStarted: self._started,
            Logged: self._logged,
            Evaluated: lambda event: self._output.line(lines.evaluated(event)),
            VersionSaved: lambda event: self._output.line(lines.saved(event)),
            Decided: lambda event: self._output.line(lines.decided(event)),
            RunEnded: lambda event: self._output.line(lines.ended(self._standing, event)),
        }

    def close(self) -> None:
        """Nothing is held back, so nothing is left to do."""

    def _notice(self, event: Notice) -> None:
        if event.level == "warning" or not self._quiet:
            self._output.line(lines.notice(event))

    def _detached(self, event: ObserverDetached) -> None:
        self._output.line(lines.detached(event))

    def _started(self, event: RunStarted) -> None:
        self._standing.start(event)
        self._output.line(lines.started(self._standing, event))

    def _logged(self, event: Logged) -> None:
        self._standing.log(event)
        self._output.line(lines.logged(self._standing, event))

    def _working(self, event: Working) -> None:
        work = self._works.get(event.what)
        if work is None or event.done < work.done:
            work = self._works[event.what] = _Work(event.time)
            self._output.line(lines.working(event))
        elif event.total is not None and event.done >= event.total:
            # The end is told twice: by the last advance, and when the work is left.
            if work.done < event.total and event.time - work.began >= 1.0:
                self._output.line(f"{lines.working(event)}  took {duration(event.time - work.began)}")
        elif event.time - work.told >= self._every:
            work.told = event.time
            self._output.line(lines.working(event))
        work.done = event.done


class _Work:
    """Long work that goes on: when it began, when its last line was written, and how far it was told to be."""

    def __init__(self, began: float) -> None:
        self.began = self.told = began
        self.done = 0.0
