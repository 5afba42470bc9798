"""Build what the cache keeps of a plan's data, or remove it."""

from __future__ import annotations

import time
from typing import Any

from nlpkernel.errors import UsageError, fail
from nlpkernel.words import duration, size
from nlpkernel_text.building import Building
from nlpkernel_text.cache import size_of


def build(building: Building) -> tuple[object, list[str]]:
    """Clean and tokenize, as far as that is not done. Raise UsageError (TXT035) for a stream."""
    _held(building)
    there = {folder for folder in building.folders.values() if folder.exists()}
    begun = time.monotonic()
    building.tokens()
    seconds = time.monotonic() - begun
    entries: list[dict[str, Any]] = [
        {"what": what, "folder": str(folder), "bytes": size_of(folder), "built": folder not in there}
        for what, folder in building.folders.items()
    ]
    lines = []
    for entry in entries:
        done = "built" if entry["built"] else "was there"
        lines.append(f"{entry['what']:<10} {size(entry['bytes']):>10}  {done}  {entry['folder']}")
    return {"entries": entries, "seconds": seconds}, [*lines, f"in {duration(seconds)}"]


def clean(building: Building) -> tuple[object, list[str]]:
    """Remove what is there. Raise UsageError (TXT035) for a stream."""
    _held(building)
    removed = building.forget()
    return {"bytes": removed}, [f"removed {size(removed)} from the cache"]


def _held(building: Building) -> None:
    if building.text.stream is not None:
        raise fail(UsageError, "TXT035", "a stream is not built: it is read as training goes on")
