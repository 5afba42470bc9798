"""Writing on standard output: lines, aligned tables and JSON. Light: `plugins` and `--help` use it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


def say(text: str = "") -> None:
    """One line."""
    sys.stdout.write(text + "\n")


def write_json(value: Any) -> None:
    """A value as JSON."""
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def table(rows: Sequence[Sequence[object]], *, head: bool = False) -> None:
    """Rows in aligned columns; with `head`, the first is set off as the header."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not cells:
        return
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for number, row in enumerate(cells):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if head and number == 0:
            say("  ".join("-" * width for width in widths))


def count(number: int, noun: str) -> str:
    """`1 component`, `2 components`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
