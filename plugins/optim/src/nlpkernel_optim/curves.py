"""The rate over a run as a pure function of the update number. Plain arithmetic: no torch.

Everywhere W is the number of warm-up updates, T the length, n the updates since the end of the warm-up, and `final` the
factor at the end. During the warm-up the factor of update u (from 0) is (u + 1) / W, so that the first update moves
and the last of the warm-up has the peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs


@attrs.frozen
class Curve:
    """A schedule without memory: a warm-up of `warmup` updates, then `shape` of the updates since."""

    warmup: int
    shape: Callable[[int], float]

    def factor(self, update: int) -> float:
        """The factor of the peak rate at an update, from 0."""
        if update < self.warmup:
            return (update + 1) / self.warmup
        return self.shape(update - self.warmup)

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Nothing that is measured changes it."""

    def state(self) -> Mapping[str, Any]:
        """It has none."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Raise ValueError where the state is another schedule's."""
        if state:
            raise ValueError(f"this schedule has no state, and was given {', '.join(sorted(state))}")


def constant(n: int) -> float:
    """1."""
    return 1.0


def linear(n: int, span: int, final: float) -> float:
    """final + (1 - final) (1 - n / span), and `final` from n = span on; span is T - W."""
    return final if n >= span else final + (1 - final) * (1 - n / span)


def cosine(n: int, span: int, final: float) -> float:
    """final + (1 - final) (1 + cos(pi n / span)) / 2, and `final` from n = span on; span is T - W.

    Loshchilov and Hutter (2017), "SGDR", equation 5, without restarts.
    """
    return final if n >= span else final + (1 - final) * 0.5 * (1 + math.cos(math.pi * n / span))


#: What is left of the way down after the part x of it, by the name of the shape.
SHAPES: Mapping[str, Callable[[float], float]] = {
    "linear": lambda x: 1 - x,
    "cosine": lambda x: 0.5 * (1 + math.cos(math.pi * x)),
    "sqrt": lambda x: 1 - math.sqrt(x),
}


def stable_decay(n: int, span: int, decay: int, shape: str, final: float) -> float:
    """1 until n = span - decay, then down to `final` by a shape over `decay` updates; span is T - W.

    Hu et al. (2024), "MiniCPM", section 4; the shape 1 - sqrt(x) is of Haegele et al. (2024), "Scaling Laws and
    Compute-Optimal Training Beyond Fixed Training Durations".
    """
    gone = n - (span - decay)
    if gone < 0:
        return 1.0
    return final if gone >= decay else final + (1 - final) * SHAPES[shape](gone / decay)


def inverse_sqrt(n: int, timescale: int, minimum: float) -> float:
    """sqrt(S / (S + n)), at least `minimum`; with the timescale S = W this is sqrt(W / update) after the warm-up.

    Vaswani et al. (2017), "Attention Is All You Need", equation 3, as a part of the peak.
    """
    return max(minimum, math.sqrt(timescale / (timescale + n)))
