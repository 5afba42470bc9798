"""Which style suits the place where output goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

Style = Literal["live", "plain", "quiet"]


def choose(
    wanted: Literal["auto", "live", "plain", "quiet"], *, terminal: bool, environment: Mapping[str, str]
) -> tuple[Style, str]:
    """The style for `wanted`, and why a wish for "live" cannot be met (empty where nothing is wrong).

    "auto" is live on a terminal, unless NO_COLOR or CI is set: then lines without control codes are what is asked for.
    A dumb terminal has no live view in any case.
    """
    if wanted in ("plain", "quiet"):
        return wanted, ""
    obstacle = ""
    if not terminal:
        obstacle = "standard output is no terminal"
    elif dumb(environment):
        obstacle = f"the terminal cannot move its cursor (TERM is {environment.get('TERM', '')!r})"
    if wanted == "live":
        return ("plain", obstacle) if obstacle else ("live", "")
    plain = obstacle or environment.get("NO_COLOR") or environment.get("CI")
    return "plain" if plain else "live", ""


def dumb(environment: Mapping[str, str]) -> bool:
    """Whether the terminal knows no control codes. Windows says nothing, and knows them."""
    return environment.get("TERM", "").lower() in ("dumb", "unknown", "") and os.name != "nt"
