"""The slot `precision`: in which number formats the model computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from nlpkernel.context import Run


class Precision(Protocol):
    """Number formats, and the scale of the loss. It never steps an optimizer."""

    #: What was picked: "fp32", "tf32", "bf16", "fp16".
    name: str
    #: Types of the parameters, of gradient reduction, and of the model's outputs.
    parameter: torch.dtype
    reduce: torch.dtype
    output: torch.dtype
    #: Whether the loss is scaled; where False the group calls neither `scale` nor `unscale` nor `observe`.
    scaled: bool

    def autocast(self) -> AbstractContextManager[Any]:
        """A context for forwards. It may be the same object each time; it is entered once per micro-batch,
        and never inside itself."""

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""

    def unscale(self, gradients: Iterable[Tensor]) -> None:
        """Divide gradients by the scale, in place."""

    def observe(self, bad: bool) -> None:
        """Told after each window whether it overflowed: adapt the scale."""

    def state(self) -> Mapping[str, Any]:
        """Scale and growth counter."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""


@hook("pick")
def create_precision(run: Run) -> Precision:  # type: ignore[empty-body]
    """Make the precision for `run.device`. Say by `run.notice` what "auto" picked; raise where the device cannot."""


POINT = Point(
    name="precision",
    slot=True,
    must=("create_precision",),
    help="in which number formats the model computes",
)
