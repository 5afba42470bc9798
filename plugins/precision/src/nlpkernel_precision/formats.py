"""The precisions: what the engine speaks to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from nlpkernel.engine.precision import PlainPrecision
from nlpkernel_precision.scale import LossScale


class Format(PlainPrecision):
    """A precision without a loss scale.

    `name` as the run shows it; `parameter`, `reduce` and `output` are the types of parameters, of gradient reduction,
    and of what matrix products give. The context of `autocast` is one object for the whole run, to be entered by one
    thread and not inside itself.
    """

    def __init__(
        self,
        name: str,
        parameter: torch.dtype = torch.float32,
        output: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        self.name = name
        self.parameter = parameter
        self.output = output
        if output != torch.float32:
            self._context = torch.autocast(device, output)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Raise ValueError where the state is another precision's."""
        if state:
            raise ValueError(f"{self.name} has no state, and was given {', '.join(sorted(state))}")


class Scaled(Format):
    """A precision with a loss scale."""

    scaled = True

    def __init__(self, name: str, output: torch.dtype, device: str, loss_scale: LossScale) -> None:
        super().__init__(name, output=output, device=device)
        self._scale = loss_scale

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        return loss * self._scale.scale

    def unscale(self, gradients: Iterable[Tensor]) -> None:
        """Divide gradients by the scale, in place; by its reciprocal in double precision, as torch does."""
        torch._foreach_mul_(list(gradients), 1.0 / self._scale.scale)

    def observe(self, bad: bool) -> None:
        """Adapt the scale."""
        self._scale.observe(bad)

    def state(self) -> Mapping[str, Any]:
        """Scale, and windows since the last change of it."""
        return self._scale.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""
        self._scale.load_state(state)


class Float32Products:
    """How this process multiplies float32 matrices, set for a run and put back after it.

    "highest" is float32 throughout; "high" lets CUDA round the factors to TensorFloat-32 (19 bits).
    """

    def __init__(self, wanted: str) -> None:
        self._before = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
        _set(wanted, wanted == "high")

    def restore(self) -> None:
        """Put back what was there before."""
        _set(*self._before)


def _set(matmul: str, convolution: bool) -> None:
    if torch.get_float32_matmul_precision() != matmul:
        torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolution
