"""The update rules, from the formulas of Defazio et al., 2024, "The Road Less Scheduled".

There are three points: z takes the steps, x is an average of all z so far, and gradients are taken at y between them.
With the rate r of update t (the first is 1), the direction d and the decay w:

    z' = z - r (d + w y)
    c  = r^2 / (the sum of r^2 over all updates so far, this one included)
    x' = (1 - c) x + c z'
    y' = (1 - b) z' + b x'

SGD takes the gradient g for d. AdamW keeps v <- b2 v + (1 - b2) g^2 and takes g / (sqrt(v / (1 - b2^t)) + eps).

A parameter holds y, and z is in the state; x = (y - (1 - b) z) / b is not kept. Put into the formula for y', this gives
y' = (1 - c) y + c z - (1 - b (1 - c)) r (d + w y), where nothing is divided by b.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class ScheduleFree(torch.optim.Optimizer, ABC):
    """What both rules have in common.

    State of each parameter: `z` in its shape; `updates` and `weight` without dimensions, the number of updates and the
    sum of squared rates. They are tensors on its device, since under `found_inf` the device alone knows whether an
    update counts: where that is 1, parameters and state keep their values, whatever the gradients hold.
    """

    found_inf: Tensor | None = None
    _step_supports_amp_scaling = True

    def __init__(self, groups: Iterable[dict[str, Any]], defaults: dict[str, Any]) -> None:
        super().__init__(groups, {"lr": 1e-3, "weight_decay": 0.0, **defaults})

    @abstractmethod
    def direction(
        self, gradient: Tensor, state: dict[str, Tensor], keep: Tensor | None, group: dict[str, Any]
    ) -> Tensor:
        """Where z is to go, against its sign, in memory of its own. Where `keep` is 0 the gradient is all zeros, and
        the state must stay; None: it is 1."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient; returns what `closure` gives, which is called first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # torch's GradScaler sets it for a while: what gradients are divided by first.
        scale: Tensor | None = getattr(self, "grad_scale", None)
        for group in self.param_groups:
            parameters = [each for each in group["params"] if each.grad is not None]
            if parameters:
                self._update(parameters, scale, group)
        return loss

    def _update(self, parameters: list[Tensor], scale: Tensor | None, group: dict[str, Any]) -> None:
        for y in parameters:
            if not self.state[y]:
                self.state[y].update(self.begin(y))
        states = [self.state[y] for y in parameters]
        rate, beta, decay = group["lr"], group["beta"], group["weight_decay"]
        device = parameters[0].device
        keep = None
        if self.found_inf is not None:
            keep = (self.found_inf.to(device, non_blocking=True) == 0).to(parameters[0].dtype)
        # What is one number for each parameter is computed for all of them at once.
        updates, weights = [each["updates"] for each in states], [each["weight"] for each in states]
        torch._foreach_add_(updates, 1.0 if keep is None else keep)
        torch._foreach_add_(weights, rate * rate if keep is None else keep * (rate * rate))
        shares = rate * rate / torch.stack(weights)
        if keep is not None:
            shares = torch.where(keep != 0, shares, 0.0)
        moved = 1 - beta * (1 - shares)
        for y, state, share, part in zip(parameters, states, shares.unbind(), moved.unbind(), strict=True):
            gradient = y.grad
            assert gradient is not None, "those without were left out"
            if scale is not None:
                gradient = gradient / scale.to(device)
            if keep is not None:
                gradient = torch.where(keep != 0, gradient, 0.0)
            direction = self.direction(gradient, state, keep, group)
            if decay:
                direction.add_(y if keep is None else y * keep, alpha=decay)
            y.lerp_(state["z"], share).addcmul_(direction, part, value=-rate)
            state["z"].sub_(direction, alpha=rate)

    def begin(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state before the first update."""
        zero = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
        return {"z": parameter.detach().clone(), "updates": zero, "weight": zero.clone()}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The parameters hold x, and y again afterwards, bit for bit. Before its first update a parameter is all three
        points at once."""
        own: list[tuple[Tensor, Tensor]] = []
        try:
            with torch.no_grad():
                for group in self.param_groups:
                    beta = group["beta"]
                    for y in group["params"]:
                        if y in self.state:
                            own.append((y, y.detach().clone()))
                            y.sub_(self.state[y]["z"], alpha=1 - beta).div_(beta)
            yield
        finally:
            with torch.no_grad():
                for parameter, value in own:
                    parameter.copy_(value)

    @property
    def lacks_state(self) -> bool:
        """Whether there are parameters, and of none of them a state."""
        parameters = [each for group in self.param_groups for each in group["params"]]
        return bool(parameters) and not any(each in self.state for each in parameters)


class Sgd(ScheduleFree):
    """Gradient descent without a schedule (section 2 of the paper)."""

    def __init__(self, groups: Iterable[dict[str, Any]], beta: float) -> None:
        super().__init__(groups, {"beta": beta})

    def direction(
        self, gradient: Tensor, state: dict[str, Tensor], keep: Tensor | None, group: dict[str, Any]
    ) -> Tensor:
        """The gradient."""
        return gradient.clone()


class AdamW(ScheduleFree):
    """AdamW without a schedule (algorithm 1 of the paper). State beside the others: `square`, which is v."""

    def __init__(self, groups: Iterable[dict[str, Any]], beta: float, beta2: float, eps: float) -> None:
        super().__init__(groups, {"beta": beta, "beta2": beta2, "eps": eps})

    def begin(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state before the first update."""
        return {**super().begin(parameter), "square": torch.zeros_like(parameter)}

    def direction(
        self, gradient: Tensor, state: dict[str, Tensor], keep: Tensor | None, group: dict[str, Any]
    ) -> Tensor:
        """The gradient over the root of the second moment."""
        decay = group["beta2"]
        square, updates = state["square"], state["updates"]
        square.lerp_(gradient.square(), 1 - decay if keep is None else keep * (1 - decay))
        # 1 - b2^t without the loss of digits that the difference would have in float32. It is 0 where the first update
        # is left out, and any number will do.
        known = -torch.expm1(updates * math.log(decay)) if decay else torch.ones_like(updates)
        known = torch.where(updates != 0, known, 1.0)
        size = square.sqrt().mul_(known.rsqrt()).add_(group["eps"])
        return torch.div(gradient, size, out=size)
