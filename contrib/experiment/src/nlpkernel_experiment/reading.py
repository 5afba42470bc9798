"""Entries read back, beside runs that write theirs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nlpkernel_experiment.entry import ALIVE, ENTRY, PLAN


def entries(root: Path) -> list[dict[str, Any]]:
    """The runs of a book, oldest first: each as in its `entry.json`, with its folder as "entry" and its settings as
    "settings". A run that was killed has the status "lost", one whose files are damaged "damaged"."""
    found = [_entry(folder) for folder in sorted(root.iterdir()) if (folder / ENTRY).is_file()]
    return sorted(found, key=lambda each: (each.get("created", 0.0), each["entry"]))


def _entry(folder: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads((folder / ENTRY).read_text(encoding="utf-8"))
        settings = dict(flat(tomllib.loads((folder / PLAN).read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        return {
            "entry": str(folder),
            "name": folder.name,
            "status": "damaged",
            "reason": str(error),
            "settings": {},
        }
    if value["status"] == "running" and not _alive(folder):
        value |= {"status": "lost", "reason": "its process ended without a word"}
    return {"entry": str(folder), **value, "settings": settings}


def _alive(folder: Path) -> bool:
    """Whether a process holds the entry. Where that cannot be found out, it is taken to."""
    lock = FileLock(folder / ALIVE)
    try:
        lock.acquire(blocking=False)
    except (Timeout, OSError):
        return True
    lock.release()
    return False


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their addresses: "optimizer.lr", "monitor[0].use"."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from flat(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from flat(each, f"{path}[{number}]")
    else:
        yield path, value


def differing(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings, but for the name of the run, that are not the same in all of these, in the order of the plans."""
    addresses: dict[str, None] = {}
    for each in listed:
        addresses |= dict.fromkeys(each["settings"])
    return [
        address
        for address in addresses
        if address != "name" and len({repr(each["settings"].get(address, ...)) for each in listed}) > 1
    ]


def metric(entry: Mapping[str, Any], name: str) -> float | None:
    """A metric of the best evaluation, or the newest where that has none of the name. Not a number is None."""
    best = entry.get("best") or {}
    value = best.get("metrics", {}).get(name, entry.get("metrics", {}).get(name))
    return value if isinstance(value, (int, float)) else None


def metrics(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of all metrics: those of the best evaluations first."""
    names: dict[str, None] = {}
    for part in ("best", "metrics"):
        for each in listed:
            found = each.get(part) or {}
            names |= dict.fromkeys(found.get("metrics", {}) if part == "best" else found)
    return list(names)
