"""Numbers as people read them."""

from __future__ import annotations

import math
import re

#: Control characters, which would reach the terminal as commands: C0, DEL, C1, and the two line separators.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def count(number: float) -> str:
    """A number of things: "950", "12.3k", "1.2M", "3.4B"."""
    return _scaled(number, ("", "k", "M", "B", "T"))


def size(number: float) -> str:
    """A number of bytes, in powers of 1000: "950 B", "1.2 GB"."""
    return _scaled(number, (" B", " kB", " MB", " GB", " TB"))


def duration(seconds: float) -> str:
    """A time span: "0.3s", "12s", "3m 20s", "2h 05m", "3d 04h"."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    minutes = round(seconds / 60)
    if minutes < 1440:
        return f"{minutes // 60}h {minutes % 60:02}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d {hours % 24:02}h"


def number(value: float | None) -> str:
    """A metric: "2.3451", "118.30", "1.204e-05"; "none" for one that was not computed, "nan" and "inf" as they are."""
    if value is None:
        return "none"
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    magnitude = abs(value)
    if value and not 1e-3 <= magnitude < 1e6:
        return f"{value:.3e}"
    return f"{value:,.{4 if magnitude < 100 else 2}f}"


def one_line(text: str) -> str:
    """Text without control characters: lines are joined by " | ", anything else is shown as an escape."""
    joined = " | ".join(line.strip(" ") for line in text.split("\n") if line.strip(" "))
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], joined)


def _scaled(number: float, units: tuple[str, ...]) -> str:
    for power, unit in enumerate(units):
        scaled = number / 1000**power
        # What would be rounded to 1000.0 belongs to the next unit.
        if abs(scaled) < (999.5 if power == 0 else 999.95) or power == len(units) - 1:
            return f"{scaled:.0f}{unit}" if power == 0 else f"{scaled:.1f}{unit}"
    raise AssertionError("the last unit takes everything")
