"""What a hook spec and an extension point are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import attrs
import pluggy

_F = TypeVar("_F", bound=Callable[..., Any])

#: pick: one owner answers. transform: a value is threaded through in plan order; an exception is fatal. collect: a
#: list of answers in plan order; an exception is fatal. observe: the answer is ignored; an exception is reported,
#: and after three the observer is detached, unless the run is strict.
HookKind = Literal["pick", "transform", "collect", "observe"]

#: Failures after which an observer, of a hook or of events, is not called any more.
PATIENCE = 3

KIND = "nlpkernel_kind"
_mark = pluggy.HookspecMarker("nlpkernel")


def hook(kind: HookKind) -> Callable[[_F], _F]:
    """Mark a function as a hook spec of `kind`. A transform's first argument is the value that is threaded."""

    def mark(function: _F) -> _F:
        setattr(function, KIND, kind)
        return _mark(function, firstresult=kind == "pick")

    return mark


@attrs.frozen(kw_only=True)
class Point:
    """A slot or a shared extension point.

    `version` is the major version of its contract and the end of its entry-point group. `must` are hooks that a
    component of this point has to implement, `may` those that it can; beside them any component may implement the
    hooks of `nlpkernel.hookspecs.everywhere`. `free`: no component of this point changes a number that a run computes,
    or only by rounding, so that a resumed run may have others.
    """

    name: str
    version: int = 1
    slot: bool = False
    many: bool = False
    free: bool = False
    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    help: str = ""

    @property
    def group(self) -> str:
        """The entry-point group in which distributions offer components for this point."""
        return f"nlpkernel.{self.name}.v{self.version}"
