"""Tries one module of components in a process of its own, for doctor. Run as a file, never imported.

Standard input: JSON with `path` (sys.path), `heavy` (package names) and `offers`. Standard output: one line
of JSON with `problems`, `points` (extension points that the components open) and `heavy` (package, where it
was imported). What the plugin prints or reads goes elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any


class Watch:
    """A finder that finds nothing, and notes who asks for a heavy package."""

    def __init__(self, heavy: Sequence[str]) -> None:
        self.heavy = frozenset(heavy)
        self.seen: dict[str, str] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Note the first import of a heavy package, and who asked for it."""
        if name in self.heavy and name not in self.seen:
            self.seen[name] = _asker()


def _asker() -> str:
    """File and line of the import statement that is being carried out."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.path[:] = request["path"]
    # Ours first, so that what the kernel needs is not put down to the plugin.
    from nlpkernel.plugins.examine import examine
    from nlpkernel.plugins.scan import Offer

    watch: Any = Watch(request["heavy"])
    sys.meta_path.insert(0, watch)
    problems, points = examine([Offer(*offer) for offer in request["offers"]])
    loaded = [(name, where) for name, where in watch.seen.items() if name in sys.modules]
    json.dump({"problems": problems, "points": sorted(points), "heavy": loaded}, answer)
    answer.flush()
    # Not by the ordinary way out: what a plugin left running, or registered for the end, must not hold us.
    os._exit(0)


if __name__ == "__main__":
    main()
