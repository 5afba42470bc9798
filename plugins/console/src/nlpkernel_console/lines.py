"""Events as lines of plain text. Every function gives one line without a control character."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nlpkernel.events import (
    Decided,
    Evaluated,
    Logged,
    Notice,
    ObserverDetached,
    RunEnded,
    RunStarted,
    VersionSaved,
    Working,
)
from nlpkernel.progress import Progress
from nlpkernel_console.humane import count, duration, number, one_line, size
from nlpkernel_console.standing import Standing


def step_of(standing: Standing, progress: Progress) -> str:
    """ "step 25/40  epoch 2.50/4.00"; the step is as wide as the total, so that lines stand below each other."""
    total, epochs = standing.total, standing.epochs
    step = f"{progress.step:,}" if total is None else f"{progress.step:>{len(f'{total:,}')},}/{total:,}"
    epoch = f"{progress.epoch:.2f}" if epochs is None else f"{progress.epoch:.2f}/{epochs:.2f}"
    return f"step {step}  epoch {epoch}"


def started(standing: Standing, event: RunStarted) -> str:
    """The line before the first step: where this process takes up, and what it runs on."""
    verb = "resumes at" if event.start.step else "starts at"
    workers = f", {event.world} workers" if event.world > 1 else ""
    where = f"{count(event.parameters)} parameters, {event.device}, {event.precision}{workers}"
    return one_line(f"{event.name} {verb} {step_of(standing, event.start)}  {where}")


def logged(standing: Standing, event: Logged) -> str:
    """The line of an interval."""
    parts = [step_of(standing, event.progress), *values(event.metrics), *speed(event)]
    if event.skipped:
        parts.append(f"skipped {event.skipped}")
    if standing.left:
        parts.append(f"left {duration(standing.left)}")
    return one_line("  ".join(parts))


def values(metrics: Mapping[str, float | None]) -> Iterator[str]:
    """Names and values, the rate in powers of ten."""
    for name, value in metrics.items():
        shown = f"{value:.2e}" if name == "rate" and value is not None else number(value)
        yield f"{name} {shown}"


def speed(event: Logged) -> Iterator[str]:
    """Tokens a second (samples where nobody counts tokens) and memory, where they are known."""
    if event.seconds > 0:
        amount, unit = (event.tokens, "tok/s") if event.tokens else (event.samples, "samples/s")
        yield f"{count(amount / event.seconds)} {unit}"
    if event.memory:
        yield size(event.memory)


def evaluated(event: Evaluated) -> str:
    """The line of an evaluation."""
    shown = "  ".join(values(event.metrics))
    best = "  best so far" if event.best else ""
    took = f"{event.samples:,} samples in {duration(event.seconds)}"
    return one_line(f"{event.split} at step {event.progress.step:,}  {shown}  ({took}){best}")


def saved(event: VersionSaved) -> str:
    """The line of a saved version."""
    return one_line(f"saved {event.version}  {size(event.bytes)} in {duration(event.seconds)}")


def notice(event: Notice) -> str:
    """The line of a notice."""
    warning = "warning: " if event.level == "warning" else ""
    return one_line(f"{warning}{event.source}: {event.message}")


def detached(event: ObserverDetached) -> str:
    """The line of an observer that failed too often."""
    return one_line(f"warning: {event.source} is not called any more for {event.hook}: {event.error}")


def decided(event: Decided) -> str:
    """The line of a decision."""
    return one_line(f"{event.action}: {event.reason} ({event.source})")


def ended(standing: Standing, event: RunEnded) -> str:
    """The last line."""
    reason = f": {event.reason}" if event.reason else ""
    return one_line(
        f"{event.status} at {step_of(standing, event.progress)} after {duration(event.seconds)}{reason}"
    )


def working(event: Working) -> str:
    """How far long work is: "reading  5/12 files  41%"."""
    done, total = _amount(event.done, event.unit), event.total
    if total is None:
        return one_line(f"{event.what}  {done} {event.unit}".rstrip())
    # Bytes say their unit with each number; others once, after the total.
    unit = "" if event.unit == "bytes" else f" {event.unit}"
    share = f"  {percent(event):.0f}%" if total else ""
    return one_line(f"{event.what}  {done}/{_amount(total, event.unit)}{unit}".rstrip() + share)


def percent(event: Working) -> float:
    """How much of long work is done, from 0 to 100; 0 where the total is not known."""
    return min(100.0 * event.done / event.total, 100.0) if event.total else 0.0


def _amount(amount: float, unit: str) -> str:
    return size(amount) if unit == "bytes" else count(amount) if amount >= 1e5 else f"{amount:,.0f}"
