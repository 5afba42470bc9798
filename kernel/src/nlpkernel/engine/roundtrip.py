"""Whether the state of each component comes back, asked before the first version relies on it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from nlpkernel.engine.equality import states_differ
from nlpkernel.errors import CheckpointError, Problem
from nlpkernel.state import Stateful


class RoundTrip:
    """Remembers what the states were when the run was opened, and later puts each back and forward again."""

    def __init__(self, parts: Mapping[str, Stateful]) -> None:
        self._parts = parts
        self._origin: dict[str, Any] | None = {
            name: copy.deepcopy(dict(part.state())) for name, part in parts.items()
        }

    def check(self) -> None:
        """Raise CheckpointError (NK507) naming every part whose state does not come back. Only the first call asks."""
        if self._origin is None:
            return
        problems = [
            Problem(code="NK507", message=f"the state of {name} does not come back: {what}")
            for name, part in self._parts.items()
            if (what := _lost(part, self._origin[name]))
        ]
        if problems:
            raise CheckpointError(problems)
        self._origin = None


def _lost(part: Stateful, origin: Mapping[str, Any]) -> str | None:
    """A state that has not moved says nothing of `load_state`, and cannot be resumed wrongly either."""
    now = copy.deepcopy(dict(part.state()))
    if states_differ(origin, now) is None:
        return None
    for saved in (origin, now):
        try:
            part.load_state(copy.deepcopy(saved))
        except Exception as error:  # noqa: BLE001 - whatever it raises, its author has to see
            return f"load_state raised {type(error).__name__}: {error}"
        what = states_differ(saved, part.state())
        if what is not None:
            return f"after load_state, state gives another value (saved, and after loading): {what}"
    return None
