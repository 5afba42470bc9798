"""Muon for hidden matrices and AdamW for the rest, in one optimizer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from nlpkernel_optim.guarded import Guarded
from nlpkernel_optim.kernels import put

#: Coefficients of the quintic iteration x <- a x + b x^3 + c x^5 (Jordan et al., 2024): steepest at 0 without leaving
#: about [0.7, 1.2] once there.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(Guarded):
    """Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon) beside AdamW.

    The same values as torch.optim.Muon, which is a reference here and not used: it takes matrices only and cannot skip
    an update by a flag.
    For a matrix X [rows, columns] with gradient G: B <- B + (1 - momentum) (G - B); with `nesterov` the update is of
    G + momentum (B - G), else of B; it is made orthogonal and X <- (1 - lr weight_decay) X - lr a O, where
    a = 0.2 sqrt(max(rows, columns)) for "rms" (Liu et al., 2025) and sqrt(max(1, rows / columns)) for "original".

    A group says by `hidden` what it is. State of a hidden matrix: `momentum_buffer`; of the rest `step`, `exp_avg`,
    `exp_avg_sq`, as torch's AdamW has them.
    """

    def __init__(
        self,
        groups: Any,
        momentum: float = 0.95,
        nesterov: bool = True,
        iterations: int = 5,
        compute: str = "bf16",
        adjust: str = "rms",
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
    ) -> None:
        defaults = {
            "lr": 1e-3,
            "weight_decay": 0.0,
            "momentum": momentum,
            "nesterov": nesterov,
            "iterations": iterations,
            "compute": compute,
            "adjust": adjust,
            "betas": betas,
            "eps": eps,
            # The step count of AdamW's part lives on the device; whoever loads a state goes by this.
            "fused": True,
        }
        super().__init__(groups, defaults)

    def update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Update one group."""
        if group["hidden"]:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                self._matrix(group, parameter, gradient)
        else:
            self._rest(group, parameters, gradients)

    def _matrix(self, group: dict[str, Any], parameter: Tensor, gradient: Tensor) -> None:
        state, skip = self.state[parameter], self.skip(parameter.device)
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = group["momentum"]
        buffer = torch.lerp(state["momentum_buffer"], gradient, 1 - momentum)
        update = torch.lerp(gradient, buffer, momentum) if group["nesterov"] else buffer
        update = orthogonal(
            update, group["iterations"], torch.float32 if group["compute"] == "fp32" else torch.bfloat16
        )
        lr = group["lr"]
        value = parameter * (1 - lr * group["weight_decay"])
        value.add_(update, alpha=-lr * adjustment(group["adjust"], parameter.shape))
        put(state["momentum_buffer"], buffer, skip)
        put(parameter, value, skip)

    def _rest(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        for state, parameter in zip(states, parameters, strict=True):
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        beta1, beta2 = group["betas"]
        adamw(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            grad_scale=None,
            found_inf=self.found_inf,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def adjustment(rule: str, shape: torch.Size) -> float:
    """The factor of the rate for a matrix of this shape."""
    rows, columns = shape
    return 0.2 * math.sqrt(max(rows, columns)) if rule == "rms" else math.sqrt(max(1.0, rows / columns))


def orthogonal(matrix: Tensor, iterations: int, dtype: torch.dtype) -> Tensor:
    """About U V^T for a matrix U S V^T: its singular values are brought near 1 by Newton-Schulz iterations.

    Works on the smaller Gram matrix, in `dtype`, and returns it in that type. Not exact on purpose: after five
    iterations singular values lie between about 0.7 and 1.2.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    value = matrix.to(dtype, copy=True)
    if tall:
        value = value.T
    value.div_(value.norm().clamp(min=1e-7))
    for _ in range(iterations):
        gram = value @ value.T
        value = torch.addmm(value, torch.addmm(gram, gram, gram, beta=b, alpha=c), value, beta=a)
    return value.T if tall else value
