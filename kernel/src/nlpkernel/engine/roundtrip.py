"""Whether the state of each component comes back, asked before a version relies on it."""

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
        self._origin = {name: copy.deepcopy(dict(part.state())) for name, part in parts.items()}

    def check(self) -> None:
        """Raise CheckpointError (NK507) naming every part whose state does not come back. Each is asked once: when it
        has moved, for a state that has not says nothing of `load_state`, and cannot be resumed wrongly either."""
        problems = []
        for name, origin in list(self._origin.items()):
            part = self._parts[name]
            now = copy.deepcopy(dict(part.state()))
            if states_differ(origin, now) is None:
                continue
            del self._origin[name]
            if what := _lost(part, origin, now):
                message = f"the state of {name} does not come back: {what}"
                problems.append(Problem(code="NK507", message=message))
        if problems:
            raise CheckpointError(problems)


def _lost(part: Stateful, origin: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    for saved in (origin, now):
        try:
            part.load_state(copy.deepcopy(saved))
        except Exception as error:  # noqa: BLE001 - whatever it raises, its author has to see
            return f"load_state raised {type(error).__name__}: {error}"
        what = states_differ(saved, part.state())
        if what is not None:
            return f"after load_state, state gives another value (saved, and after loading): {what}"
    return None
