"""Files that survive their writer, and that several processes write at once."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from filelock import FileLock


def put(path: Path, value: Any) -> None:
    """Write a value as JSON. A process that is killed meanwhile leaves the file as it was, or whole. Numbers that are
    not finite are written as "NaN", "Infinity" and "-Infinity"."""
    put_bytes(path, (json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n").encode())


def put_bytes(path: Path, content: bytes) -> None:
    """The same with bytes as they are."""
    # Nobody else writes this file, and what a killed process left is written over.
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(content)
    os.replace(aside, path)


def append(path: Path, value: Any) -> None:
    """Append a value as a line of JSON, whoever else does so at the same time. Half a line of one that was killed stays
    a line by itself."""
    line = (json.dumps(_plain(value), ensure_ascii=False) + "\n").encode()
    with FileLock(path.with_name(f".{path.name}.lock")), path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
