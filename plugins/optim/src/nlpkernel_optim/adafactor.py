"""Adafactor without a read of the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nlpkernel_optim.guarded import Guarded
from nlpkernel_optim.kernels import descend, put


class Adafactor(Guarded):
    """Adafactor (Shazeer and Stern, 2018, algorithms 4 to 6, without a first moment), over the last two dimensions.

    With gradient G, update t (from 1) and w = t**-decay, for a parameter X of two or more dimensions:

        R <- R + w (mean over columns of (G*G + eps1) - R)            [.., rows, 1]
        C <- C + w (mean over rows of (G*G + eps1) - C)               [.., 1, columns]
        V = R C / (mean of R),  U = G / sqrt(V)

    and with one V of X's shape, averaged likewise, for vectors. Then

        X <- X - lr s U / max(1, rms(U) / clip) - lr weight_decay X,  s = max(eps2, rms(X)) if relative, else 1.

    Means where the paper has sums: the same V, and no large sums. State: `step`, and `row` and `column` or `square`,
    all float32, since means of squares do not fit bfloat16.
    """

    def __init__(
        self,
        groups: Any,
        relative: bool = True,
        decay: float = 0.8,
        clip: float = 1.0,
        eps: tuple[float, float] = (1e-30, 1e-3),
    ) -> None:
        defaults = {
            "lr": 1e-2,
            "weight_decay": 0.0,
            "relative": relative,
            "decay": decay,
            "clip": clip,
            "eps": eps,
            # torch's word for a step count that lives on the device; whoever loads a state goes by it.
            "capturable": True,
        }
        super().__init__(groups, defaults)

    def update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Update one group, a tensor at a time, so that no more than one update is held."""
        for parameter, gradient in zip(parameters, gradients, strict=True):
            direction = self._direction(group, parameter, gradient.float())
            descend(
                [parameter],
                [direction.to(parameter.dtype)],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                found_inf=self.found_inf,
            )

    def _direction(self, group: dict[str, Any], parameter: Tensor, gradient: Tensor) -> Tensor:
        """The update of a tensor before rate and decay, in float32. Moves the state."""
        state, skip = self.state[parameter], self.skip(parameter.device)
        if not state:
            _start(state, parameter)
        step = state["step"] + 1
        weight = step ** -group["decay"]
        least, smallest = group["eps"]
        if gradient.ndim > 1:
            row = torch.lerp(state["row"], _mean_square(gradient, -1) + least, weight)
            column = torch.lerp(state["column"], _mean_square(gradient, -2) + least, weight)
            update = gradient * (row / row.mean(-2, keepdim=True)).rsqrt_()
            update *= column.rsqrt()
            put(state["row"], row, skip)
            put(state["column"], column, skip)
        else:
            square = torch.lerp(state["square"], gradient.square() + least, weight)
            update = gradient * square.rsqrt()
            put(state["square"], square, skip)
        put(state["step"], step, skip)
        factor = 1 / (_rms(update) / group["clip"]).clamp_(min=1)
        if group["relative"]:
            factor *= _rms(parameter).clamp_(min=smallest)
        update *= factor
        return update


def _start(state: dict[str, Tensor], parameter: Tensor) -> None:
    def zeros(shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=torch.float32, device=parameter.device)

    shape = parameter.shape
    state["step"] = zeros(())
    if parameter.ndim > 1:
        state["row"] = zeros((*shape[:-1], 1))
        state["column"] = zeros((*shape[:-2], 1, shape[-1]))
    else:
        state["square"] = zeros(shape)


def _mean_square(values: Tensor, dimension: int) -> Tensor:
    """The mean of squares along a dimension, which is kept. The norm needs no tensor of squares."""
    norm: Tensor = torch.linalg.vector_norm(values, dim=dimension, keepdim=True)
    return norm.square_().div_(values.shape[dimension])


def _rms(values: Tensor) -> Tensor:
    """The root mean square of a tensor, in float32, on its device."""
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.float32)
    return norm.div_(values.numel() ** 0.5)
