"""Sizes, durations and counts as people write them: "200MB", "1h30m", "300M"."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

Unit = Literal["bytes", "seconds", "count"]

#: Factors of the units, in milliseconds for durations.
_BYTES = {"PB": 10**15, "PiB": 2**50, "TB": 10**12, "TiB": 2**40, "GB": 10**9, "GiB": 2**30}
_BYTES |= {"MB": 10**6, "MiB": 2**20, "kB": 10**3, "KiB": 2**10, "B": 1}
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_COUNTS = {"T": 10**12, "B": 10**9, "M": 10**6, "k": 10**3}
_FACTORS: dict[Unit, dict[str, int]] = {"bytes": _BYTES, "seconds": _MILLISECONDS, "count": _COUNTS}

_EXAMPLES = {
    "bytes": 'a size is written like "200MB" (10^6 bytes) or "200MiB" (2^20)',
    "seconds": 'a duration is written like "500ms", "90s", "5m", "2h", "1d" or "1h30m"',
    "count": 'a count is written like "10k", "300M", "1.5B" (10^9) or "2T" (10^12)',
}
#: What people write instead.
_WORDS = {
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hr": "h",
    "hour": "h",
    "day": "d",
    "g": "B",
    "bn": "B",
}
_PART = re.compile(r"([0-9]+)(?:\.([0-9]+))? ?([A-Za-z]+)")
#: Longer texts are no sizes, and integers of any length cost time.
_LONGEST = 400


def parse_unit(text: str, unit: Unit) -> int | float:
    """The number that a size ("bytes"), a duration ("seconds") or a count ("count") stands for.

    Sizes and counts are whole and come as int, durations as float. Raises ValueError, with a sentence that says how to
    write it, for anything else: a number without unit, an unknown unit, a size that is not whole.
    """
    parts = [match.groups() for match in _PART.finditer(text)] if len(text) <= _LONGEST else []
    if not parts or not re.fullmatch(rf"(?:{_PART.pattern} ?)+", text) or text.endswith(" "):
        if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
            raise ValueError(
                f"{_quoted(text)} has no unit: {_EXAMPLES[unit]}; a plain number stands without quotes"
            )
        raise ValueError(f"{_quoted(text)} cannot be read: {_EXAMPLES[unit]}")
    factors = [_factor(text, name, unit) for _, _, name in parts]
    if unit != "seconds" and len(parts) > 1:
        raise ValueError(f"{_quoted(text)} is more than one number: {_EXAMPLES[unit]}")
    if any(later >= earlier for earlier, later in pairwise(factors)):
        raise ValueError(
            f"{_quoted(text)} is not in order: the largest unit comes first, and each stands once"
        )
    # In whole numbers, so that nothing is rounded before the end.
    places = max(len(fraction or "") for _, fraction, _ in parts)
    total = sum(
        int(whole + (fraction or "").ljust(places, "0")) * factor
        for (whole, fraction, _), factor in zip(parts, factors, strict=True)
    )
    scale: int = 10**places
    if unit == "seconds":
        try:
            return total / (1000 * scale)
        except OverflowError:
            raise ValueError(f"{_quoted(text)} is too long for a duration") from None
    value, rest = divmod(total, scale)
    if rest:
        noun = "bytes" if unit == "bytes" else "things"
        raise ValueError(f"{_quoted(text)} is no whole number of {noun}")
    return value


def _factor(text: str, name: str, unit: Unit) -> int:
    factors = _FACTORS[unit]
    if name in factors:
        return factors[name]
    # A capital K for 10^3 is as common as a small one; no other letter has two cases.
    if name == {"bytes": "KB", "count": "K"}.get(unit):
        return 1000
    lower = name.lower()
    near = [each for each in factors if each.lower() in (lower, lower + "b")]
    meant = near[0] if near else _WORDS.get(lower.rstrip("s"))
    tip = f"did you mean {meant}? " if meant in factors else ""
    raise ValueError(f"{_quoted(text)} has the unknown unit {name}: {tip}{_EXAMPLES[unit]}")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
