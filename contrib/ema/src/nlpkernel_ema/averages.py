"""The average itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

#: What the names of averages begin with in the state.
_MEAN = "mean/"


class Averages:
    """mean <- d * mean + (1 - d) * weights after each update, beginning with the weights after the first one; d is
    `decay`, and with `warmup` at most (1 + n) / (10 + n) at update n. In the type of the weights."""

    def __init__(self, module: nn.Module, decay: float, warmup: bool) -> None:
        self._module, self._decay, self._warmup = module, decay, warmup
        self._updates = 0
        self._means: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights as they are now into the average."""
        self._updates += 1
        kept = min(self._decay, (1 + self._updates) / (10 + self._updates)) if self._warmup else self._decay
        for name, weight in self._module.named_parameters():
            if name in self._means:
                self._means[name].lerp_(weight, 1 - kept)
            else:
                self._means[name] = weight.detach().clone()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The module holds the average, and its own weights again afterwards, bit for bit. Before the first update it
        holds its own."""
        own = {name: weight.detach().clone() for name, weight in self._module.named_parameters()}
        self._fill(self._means)
        try:
            yield
        finally:
            self._fill(own)

    def state(self) -> Mapping[str, Any]:
        """The average and how many updates it has seen."""
        return {"updates": self._updates, **{f"{_MEAN}{name}": mean for name, mean in self._means.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave. Raise ValueError for other parameters than those of the module."""
        means = {
            name.removeprefix(_MEAN): value.clone() for name, value in state.items() if name.startswith(_MEAN)
        }
        shapes = {name: weight.shape for name, weight in self._module.named_parameters()}
        if means and {name: mean.shape for name, mean in means.items()} != shapes:
            raise ValueError("the average is of other parameters")
        self._means, self._updates = means, state["updates"]

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Tensor]) -> None:
        for name, weight in self._module.named_parameters():
            if name in values:
                weight.copy_(values[name])
