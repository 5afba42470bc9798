"""The component `console`: a run, to be watched by a person."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.bus import Bus
    from nlpkernel.context import Run


@component
class Console:
    """A live view on a terminal; plain lines, without any control code, everywhere else.

    It writes to standard output; under `nlpkernel run -q` it is quiet, whatever its style. On a terminal that has
    NO_COLOR or CI in its environment, or is a dumb one, `auto` means plain lines too.
    """

    style: Literal["auto", "live", "plain", "quiet"] = setting(
        default="auto",
        help="live: a view that is redrawn in place; plain: a line for each fact; quiet: warnings only; auto: live "
        "on a terminal, else plain",
    )
    width: int | None = setting(
        default=None, ge=40, help="columns of the live view; left out: those of the terminal"
    )
    every: float = setting(
        default=10.0,
        gt=0,
        unit="seconds",
        help="time between two plain lines of long work before the first step",
    )

    _view: Any = attrs.field(init=False, default=None)

    @hookimpl
    def subscribe(self, run: Run, bus: Bus) -> None:
        """Listen to everything that the style shows."""
        if sys.stdout is None:
            return
        from nlpkernel_console.output import Output
        from nlpkernel_console.terminal import choose

        output = Output(sys.stdout)
        style, obstacle = choose(
            "quiet" if run.quiet else self.style, terminal=sys.stdout.isatty(), environment=os.environ
        )
        if style == "live":
            from nlpkernel_console.live import LiveView

            self._view = LiveView(output, width=self.width, colour=not os.environ.get("NO_COLOR"))
        else:
            from nlpkernel_console.plain import PlainView

            self._view = PlainView(output, every=self.every, quiet=style == "quiet")
        for kind, function in self._view.handlers().items():
            bus.on(kind, _on_first_worker(run, function))
        if obstacle:
            run.notice("console", f"there is no live view: {obstacle}", level="warning")

    @hookimpl
    def close(self, run: Run) -> None:
        """End the view and leave the terminal as it was found."""
        if self._view is not None:
            self._view.close()
            self._view = None


def _on_first_worker(run: Run, function: Callable[[Any], None]) -> Callable[[Any], None]:
    # A worker learns its rank when the group is opened, which is after it was asked to subscribe.
    def told(event: Any) -> None:
        if run.rank == 0:
            function(event)

    return told
