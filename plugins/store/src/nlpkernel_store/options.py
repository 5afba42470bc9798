"""What the settings of the component come to. Light: no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

import attrs

from nlpkernel_store.rotation import Rule


@attrs.frozen(kw_only=True)
class Worker:
    """Which of the workers of a run this is. launch: a word that all of them share, and no other start of the run.
    present: those that have a part of what is saved now, which may become fewer at any time; None: all."""

    launch: str
    rank: int = 0
    world: int = 1
    present: Callable[[], Collection[int]] | None = None

    @property
    def others(self) -> set[int]:
        """Those beside the first that have a part."""
        ranks = range(self.world) if self.present is None else self.present()
        return set(ranks) - {0}


@attrs.frozen(kw_only=True)
class Options:
    """See the settings of the component. Times are in seconds."""

    keep: Rule | None = None
    asynchronous: bool = True
    verify: bool = True
    on_failure: Literal["stop", "continue"] = "stop"
    retries: int = 2
    retry_after: float = 1.0
    rank_timeout: float = 600.0
