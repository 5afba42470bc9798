"""Commands in a shell script, an option a line. Light."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command(*lines: Sequence[str], indent: int = 0, raw: Sequence[str] = ()) -> str:
    """A command over several lines. Words are quoted, but for those in `raw`, which the shell expands."""
    plain = frozenset(raw)
    shown = [
        " ".join(word if word in plain else shlex.quote(word) for word in line) for line in lines if line
    ]
    space = " " * indent
    return f" \\\n{space}    ".join([space + shown[0], *shown[1:]])


def script(*parts: str) -> str:
    """A script of its paragraphs."""
    return "\n".join(["#!/bin/bash", *parts]) + "\n"
