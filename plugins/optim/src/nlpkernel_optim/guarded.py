"""The base of our own optimizers: they can skip an update by a flag on the device, without a read on the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor


class Guarded(torch.optim.Optimizer, ABC):
    """An optimizer that honours torch's `found_inf` and `grad_scale` attributes.

    found_inf: a float tensor without dimensions, or None. 1 makes this update a no-op: weights, moments and step
    counters keep every bit, whatever the gradients hold. grad_scale: what gradients are divided by first, in place, or
    None.
    A subclass implements `update`.
    """

    found_inf: Tensor | None = None
    _step_supports_amp_scaling = True

    @abstractmethod
    def update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Update those parameters of a group that have a gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do one update; returns what `closure` gives, which is called first if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # torch's GradScaler sets this one and takes it away; a None of the class would break it.
        scale: Tensor | None = getattr(self, "grad_scale", None)
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            gradients = [parameter.grad for parameter in parameters]
            if scale is not None:
                torch._foreach_div_(gradients, scale)
            self.update(group, parameters, gradients)
        return loss

    def skip(self, device: torch.device) -> Tensor | None:
        """A boolean tensor without dimensions that says whether to skip this update; None: do not."""
        if self.found_inf is None:
            return None
        return self.found_inf.to(device, non_blocking=True) != 0

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a state. Each tensor keeps its own type, where torch would give it the parameter's."""
        super().load_state_dict(state_dict)
        keys = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        own = chain.from_iterable(group["params"] for group in self.param_groups)
        for key, parameter in zip(keys, own, strict=True):
            for name, value in state_dict["state"].get(key, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][name] = value.detach().to(parameter.device, copy=True)
