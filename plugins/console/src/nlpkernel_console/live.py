"""The live view: a few lines that are redrawn in place, and everything worth keeping scrolling by above them."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

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
    WindowSkipped,
    Working,
)
from nlpkernel_console import lines
from nlpkernel_console.output import Output
from nlpkernel_console.panel import Panel

#: Seconds between two looks at whether there is something to draw.
_TICK = 0.25


class LiveView:
    """Draws in a thread of its own, at most four times a second, from what the handlers put down.

    A handler on the training thread only stores a value or queues a line. (rich's own refresh thread would redraw the
    view but not print the queued lines, which then had to be printed on the training thread.) The cursor stays visible
    below the view, so that the terminal is in order even after a kill -9.
    """

    def __init__(self, output: Output, *, width: int | None, colour: bool) -> None:
        # rich writes to anything with write, flush, isatty and fileno.
        file = cast("IO[str]", output)
        self._console = Console(
            file=file, force_terminal=True, no_color=not colour, width=width, highlight=False, markup=False
        )
        self._panel = Panel(plain_bar=not output.encoding.lower().startswith("utf"))
        self._open: tuple[Live, threading.Thread] | None = None
        self._queue: deque[Text] = deque()
        self._ended: str | None = None
        self._changed = False
        self._drawn = 0
        self._stopping = threading.Event()
        self._failure: Exception | None = None

    def handlers(self) -> Mapping[type[Event], Callable[[Any], None]]:
        """What to subscribe to."""
        standing = self._panel.standing
        return {
            Working: self._showing(self._panel.work),
            RunStarted: self._showing(self._started),
            Logged: self._showing(standing.log),
            WindowSkipped: self._showing(standing.skip),
            Evaluated: self._showing(self._evaluated),
            VersionSaved: self._showing(lambda event: self._say(lines.saved(event), "dim")),
            Notice: self._showing(self._notice),
            ObserverDetached: self._showing(lambda event: self._say(lines.detached(event), "yellow")),
            Decided: self._showing(lambda event: self._say(lines.decided(event), "bold")),
            RunEnded: self._showing(self._finish),
        }

    def close(self) -> None:
        """Draw a last time, end the thread, and give the terminal back."""
        if self._open is None:
            return
        (live, thread), self._open = self._open, None
        self._stopping.set()
        thread.join()
        try:
            self._draw(live)
        finally:
            live.stop()
        atexit.unregister(self.close)
        if self._ended is not None:
            self._console.print(Text(self._ended, "bold"), soft_wrap=True)

    def _showing(self, store: Callable[[Any], None]) -> Callable[[Any], None]:
        def told(event: Any) -> None:
            if self._failure is not None:
                raise self._failure
            store(event)
            self._changed = True
            if self._open is None:
                self._open = self._start()

        return told

    def _started(self, event: RunStarted) -> None:
        self._panel.start(event)
        self._say(lines.started(self._panel.standing, event), "bold")

    def _evaluated(self, event: Evaluated) -> None:
        self._panel.standing.evaluate(event)
        self._say(lines.evaluated(event), "green" if event.best else "")

    def _notice(self, event: Notice) -> None:
        warning = event.level == "warning"
        self._panel.warnings += warning
        self._say(lines.notice(event), "yellow" if warning else "")

    def _finish(self, event: RunEnded) -> None:
        self._ended = lines.ended(self._panel.standing, event)

    def _say(self, line: str, style: str) -> None:
        self._queue.append(Text(line, style))

    def _start(self) -> tuple[Live, threading.Thread]:
        live = Live(
            console=self._console,
            auto_refresh=False,
            get_renderable=self._view,
            # What goes to another place than the terminal must keep going there.
            redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
        )
        live.start()
        self._console.show_cursor(True)
        atexit.register(self.close)
        thread = threading.Thread(target=self._loop, args=(live,), name="nlpkernel-console", daemon=True)
        thread.start()
        return live, thread

    def _view(self) -> Text:
        return self._panel.text(time.monotonic(), width=self._console.width, last=self._stopping.is_set())

    def _loop(self, live: Live) -> None:
        try:
            while not self._stopping.wait(_TICK):
                # Between events only the clocks of the view move, and they show seconds.
                if self._changed or int(time.monotonic()) != self._drawn:
                    self._draw(live)
        except Exception as error:  # noqa: BLE001 - raised again on the training thread, where the bus counts it
            self._failure = error

    def _draw(self, live: Live) -> None:
        self._changed = False
        self._drawn = int(time.monotonic())
        if self._queue:
            said = [self._queue.popleft() for _ in range(len(self._queue))]
            self._console.print(Text("\n").join(said), soft_wrap=True)
        live.refresh()
