"""The scale of the loss that keeps float16 gradients away from 0. Plain arithmetic on the host: no torch."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.define(kw_only=True, eq=False)
class LossScale:
    """Dynamic loss scaling (Micikevicius et al., 2018, "Mixed Precision Training", section 3.2).

    After a window that overflowed the scale is multiplied by `backoff`; after `interval` windows in a row that did not,
    by `growth`. The values are those of torch.amp.GradScaler: products in double precision, rounded to float32, and
    no growth beyond the largest float32. Beyond torch, the scale does not fall below `minimum`.
    """

    scale: float
    growth: float
    backoff: float
    interval: int
    minimum: float
    good: int = 0

    def observe(self, bad: bool) -> None:
        """Take a window into account; `bad` says that it overflowed."""
        if bad:
            self.scale = max(_float32(self.scale * self.backoff), self.minimum)
            self.good = 0
            return
        self.good += 1
        if self.good >= self.interval:
            grown = _float32(self.scale * self.growth)
            if math.isfinite(grown):
                self.scale = grown
            self.good = 0

    def state(self) -> Mapping[str, Any]:
        """Scale, and windows since the last change of it."""
        return {"scale": self.scale, "good": self.good}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave. Raise ValueError where it is none of this."""
        if set(state) != {"scale", "good"}:
            raise ValueError(f"not the state of a loss scale: {', '.join(sorted(state)) or 'empty'}")
        self.scale, self.good = float(state["scale"]), int(state["good"])


def _float32(value: float) -> float:
    """The nearest float32; infinity beyond the largest."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return rounded
