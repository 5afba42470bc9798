"""The estimate, on the device.

G is the true gradient of the loss, the mean over all samples, and S the covariance of the gradient of one sample. The
mean gradient g of n samples has E |g|^2 = |G|^2 + tr(S) / n (McCandlish et al., 2018, appendix A.1). So two of them,
of b and of B samples, of which the one may be a part of the other, tell

    signal = (B |g_B|^2 - b |g_b|^2) / (B - b)          whose mean is |G|^2
    noise  = (|g_b|^2 - |g_B|^2) / (1 / b - 1 / B)      whose mean is tr(S)

and two that have no sample in common, of b and of c samples, tell it by their product:

    signal = g_b . g_c
    noise  = |g_b - g_c|^2 / (1 / b + 1 / c)

The noise scale is tr(S) / |G|^2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Named = Sequence[tuple[str, Tensor]]

#: What the names of a kept gradient begin with in the state.
_BEFORE = "before/"


def square(named: Named) -> Tensor:
    """The squared norm of all of them together, without dimensions, on their device."""
    return torch.stack([gradient.detach().float().square().sum() for _, gradient in named]).sum()


def of_part(part: Tensor, whole: Tensor, b: float, of: float) -> tuple[Tensor, Tensor]:
    """Noise and signal from the squared norms of the mean gradients of `b` samples, and of all `of` of a window."""
    noise = (part - whole) / (1 / b - 1 / of)
    signal = (of * whole - b * part) / (of - b)
    return noise, signal


def of_two(first: Mapping[str, Tensor], second: Named, b: float, c: float) -> tuple[Tensor, Tensor]:
    """Noise and signal from the mean gradients of two batches that have no sample in common, of `b` and `c` samples. A
    parameter that one of them lacks has a gradient of zeros there."""
    own = {name: gradient.detach() for name, gradient in second}
    signals, noises = [], []
    for name in sorted(first.keys() | own.keys()):
        one, other = first.get(name), own.get(name)
        one = torch.zeros_like(other) if one is None and other is not None else one
        assert one is not None
        other = torch.zeros_like(one) if other is None else other
        signals.append((one.float() * other.float()).sum())
        noises.append((one.float() - other.float()).square().sum())
    return torch.stack(noises).sum() / (1 / b + 1 / c), torch.stack(signals).sum()


class Means:
    """Running means of noise and signal, each for itself, and the first gradient of a pair that waits for the second.

    m <- d m + (1 - d) v, which starts with 0; `weight` is what it would be for v = 1, so that m / weight is no smaller
    at the beginning. What is not finite is left out, which the device decides.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        #: Noise, signal, weight.
        self._means = torch.zeros(3)
        self._before: dict[str, Tensor] = {}
        self._size = 0.0

    def add(self, noise: Tensor, signal: Tensor) -> None:
        """One more of each, without dimensions."""
        now = torch.stack((noise, signal, torch.ones_like(noise)))
        means = self._means.to(now.device)
        self._means = torch.where(now.isfinite().all(), torch.lerp(means, now, 1 - self._decay), means)

    def pair(self, named: Named, size: float) -> None:
        """The mean gradient of a window of so many samples: the first of a pair is kept, the second compared."""
        if not self._before:
            self._before, self._size = {name: gradient.detach().clone() for name, gradient in named}, size
            return
        first, self._before = self._before, {}
        device = named[0][1].device if named else self._means.device
        self.add(
            *of_two({name: gradient.to(device) for name, gradient in first.items()}, named, self._size, size)
        )

    def read(self) -> tuple[float, float] | None:
        """Noise and signal on the host, which waits for the device; None where there is nothing yet."""
        noise, signal, weight = self._means.tolist()
        return (noise / weight, signal / weight) if weight else None

    def state(self) -> Mapping[str, Any]:
        """The means, and the gradient that waits."""
        kept = {f"{_BEFORE}{name}": gradient for name, gradient in self._before.items()}
        return {"means": self._means, "size": self._size, **kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave. Raise ValueError where it is none of this component's."""
        means = state.get("means")
        if not isinstance(means, Tensor) or means.shape != (3,):
            raise ValueError("there are no running means of noise, signal and weight")
        self._means, self._size = means.clone(), state["size"]
        self._before = {
            name.removeprefix(_BEFORE): value.clone()
            for name, value in state.items()
            if name.startswith(_BEFORE)
        }
