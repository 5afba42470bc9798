"""State in typed leaves: what a leaf is decides what becomes of it when the number of workers changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs


@attrs.frozen
class Replicated:
    """The same on every worker; any one of them may save it."""


@attrs.frozen
class Sharded:
    """A piece of a whole: `shape` of the whole, `offset` of this piece, both in elements per dimension."""

    shape: tuple[int, ...]
    offset: tuple[int, ...]


@attrs.frozen
class PerWorker:
    """Belongs to one worker (its random generators, its residuals); a new worker starts without it."""

    worker: int


Kind = Replicated | Sharded | PerWorker


@attrs.frozen
class Leaf:
    """One value of the state: a tensor, or plain data (None, bool, int, float, str, bytes, list, dict)."""

    value: Any
    kind: Kind = Replicated()


#: The whole state of a run: path ("model/blocks.0.attn.q", "optimizer/...", "random/torch") to leaf.
Tree = Mapping[str, Leaf]


#: A name of a component's state that begins so holds what follows the clock (seconds used), which no repetition gives
#: again; it is kept, and compared with nothing.
CLOCK = "clock/"


class Stateful(Protocol):
    """Something that can be put away and taken up again, exactly, also while it is in use: a roll-back does that."""

    def state(self) -> Mapping[str, Any]:
        """What must be kept: names to tensors or plain data."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave. Raise ValueError where it does not fit."""


@attrs.frozen(kw_only=True)
class Snapshot:
    """Everything of a run at one moment, as it goes into a version. Its tensors are the run's own, not copies: the next
    step changes them.

    `artifacts` are small files that later uses need (tokenizer, label map); `facts` is plain data about where this
    comes from (progress, metrics, lock, filled plan). `name` is that of the version that it was loaded from, if it was.
    """

    step: int
    tree: Tree
    artifacts: Mapping[str, bytes]
    facts: Mapping[str, Any]
    name: str | None = None


@attrs.frozen(kw_only=True)
class VersionInfo:
    """One saved version, as a listing shows it. `name` is what `load` takes."""

    name: str
    step: int
    bytes: int
    created: float
    metrics: Mapping[str, float | None]
    tags: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Saved:
    """What became of one save. `version` is None where it failed, and `error` says why. seconds: from the save to its
    end, most of which the training did not wait for."""

    step: int
    version: VersionInfo | None
    seconds: float
    error: str = ""
