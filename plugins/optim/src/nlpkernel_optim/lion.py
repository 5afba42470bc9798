"""Lion, built on torch's fused kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nlpkernel_optim.guarded import Guarded
from nlpkernel_optim.kernels import batches, descend


class Lion(Guarded):
    """Lion (Chen et al., 2023, algorithm 2), elementwise.

    With gradient g, momentum m, rate r and decay d: p <- p - r (sign(b1 m + (1 - b1) g) + d p), then
    m <- b2 m + (1 - b2) g. State: `exp_avg`, the momentum, of the parameter's shape and type.
    """

    def __init__(self, groups: Any, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(groups, {"lr": 1e-4, "betas": betas, "weight_decay": 0.0})

    def update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Update one group."""
        beta1, beta2 = group["betas"]
        for batch, now in batches(parameters, gradients):
            moments = [self._moment(parameter) for parameter in batch]
            directions = list(torch._foreach_lerp(moments, now, 1 - beta1))
            torch._foreach_sign_(directions)
            descend(
                batch,
                directions,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                found_inf=self.found_inf,
            )
            # m - (1 - b2) (m - g) is descent too: from m along -g, with a decay of 1.
            descend(moments, now, lr=1 - beta2, weight_decay=1.0, found_inf=self.found_inf, ascend=True)

    def _moment(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
        moment: Tensor = state["exp_avg"]
        return moment
