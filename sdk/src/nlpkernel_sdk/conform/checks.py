"""What a check is. Checks register themselves when their module is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args

import attrs

Level = Literal["static", "behaviour", "distributed", "cost"]
LEVELS: tuple[Level, ...] = get_args(Level)

_F = TypeVar("_F", bound=Callable[..., Any])


class NonconformingError(Exception):
    """What a check found wrong, in one line or several."""


class NotApplicable(Exception):
    """Why a check says nothing of a component."""


@attrs.frozen(kw_only=True)
class Check:
    """One check. id: its name, "level.what". reason: why it matters, for whoever fails it. points: those to whose
    components it applies; empty: all. whole: it looks at the distribution, once."""

    id: str
    level: Level
    reason: str
    function: Callable[..., str | None]
    points: frozenset[str] = frozenset()
    whole: bool = False


#: Every check by its id, in the order in which they are run.
REGISTRY: dict[str, Check] = {}


def check(id: str, reason: str, *, points: Iterable[str] = (), whole: bool = False) -> Callable[[_F], _F]:
    """Register a function as a check. It is given a `Subject` where `whole`, else a `Part`; it raises
    NonconformingError or NotApplicable, and may return what it measured."""
    level = id.partition(".")[0]
    assert level in LEVELS, f"{id}: a check's name begins with its level"
    assert id not in REGISTRY, f"{id} is registered twice"

    def register(function: _F) -> _F:
        REGISTRY[id] = Check(
            id=id,
            level=level,
            reason=reason,
            function=function,
            points=frozenset(points),
            whole=whole,
        )
        return function

    return register


def refuse(lines: Iterable[str]) -> None:
    """Raise NonconformingError with these lines, where there are any."""
    found = list(lines)
    if found:
        more = f"\n(and {len(found) - 8} more)" if len(found) > 8 else ""
        raise NonconformingError("\n".join(found[:8]) + more)
