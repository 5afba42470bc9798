"""What the live view shows, as text for rich."""

from __future__ import annotations

from rich.text import Text

from nlpkernel.events import Evaluated, RunStarted, Working
from nlpkernel_console import lines
from nlpkernel_console.humane import duration, one_line
from nlpkernel_console.standing import Standing


class Panel:
    """The newest of everything, drawn on demand; `text` may be called on another thread than the rest."""

    def __init__(self, *, plain_bar: bool) -> None:
        self.standing = Standing()
        self.warnings = 0
        self._full, self._empty = ("#", "-") if plain_bar else ("━", "─")
        self._bar = 0
        self._work: Working | None = None

    def work(self, event: Working) -> None:
        """Long work went on, or ended."""
        self._work = None if event.total is not None and event.done >= event.total else event

    def start(self, event: RunStarted) -> None:
        """The first step comes next."""
        self._work = None
        self.standing.start(event)

    def text(self, now: float, *, width: int, last: bool) -> Text:
        """The view at the time `now` (of `time.monotonic`), its lines cut at `width` columns. Below them is an empty
        line for the cursor; the `last` drawing goes without.
        """
        self._bar = 24 if width >= 110 else 12
        text = Text(no_wrap=True, overflow="ellipsis", end="" if last else "\n")
        if self._work is not None:
            self._progress_of(text, lines.percent(self._work), bool(self._work.total))
            text.append(f"{lines.working(self._work)}\n")
        if self.standing.started is not None:
            self._run(text, now)
        return text

    def _run(self, text: Text, now: float) -> None:
        standing, progress = self.standing, self.standing.progress
        started = standing.started
        assert started is not None, "asked after the start only"
        share = 100.0 * progress.step / started.steps if started.steps else 100.0
        self._progress_of(text, share, True)
        text.append(one_line(started.name), "bold")
        text.append(f"  {lines.step_of(standing, progress)}  {share:.0f}%")
        logged = standing.logged
        if logged is not None and standing.left:
            text.append(f"  {duration(standing.left - (now - standing.logged_at))} left")
        text.append(f"  {duration(now - standing.began)} so far", "dim")
        text.append("\n")
        if logged is not None:
            text.append(one_line("  ".join([*lines.values(logged.metrics), *lines.speed(logged)])) + "\n")
        if standing.evaluated is not None:
            self._evaluation(text, standing.evaluated, standing.best)
        self._troubles(text)

    def _evaluation(self, text: Text, evaluated: Evaluated, best: Evaluated | None) -> None:
        shown = "  ".join(lines.values(evaluated.metrics))
        text.append(one_line(f"{evaluated.split}  {shown}  at step {evaluated.progress.step:,}"))
        if best is evaluated:
            text.append("  best so far", "green")
        elif best is not None:
            first = next(iter(lines.values(best.metrics)), "")
            text.append("  " + one_line(f"best {first} at step {best.progress.step:,}"), "green")
        text.append("\n")

    def _troubles(self, text: Text) -> None:
        parts = []
        # A copy, for the training thread may add a reason meanwhile.
        skipped = dict(self.standing.skipped)
        if skipped:
            reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(skipped.items()))
            parts.append(f"skipped windows: {reasons}")
        if self.warnings:
            parts.append(f"warnings: {self.warnings}")
        if parts:
            text.append(one_line("  ".join(parts)) + "\n", "yellow")

    def _progress_of(self, text: Text, share: float, known: bool) -> None:
        if not known:
            return
        full = round(self._bar * min(share, 100.0) / 100)
        text.append(self._full * full, "green")
        text.append(self._empty * (self._bar - full) + "  ", "dim")
