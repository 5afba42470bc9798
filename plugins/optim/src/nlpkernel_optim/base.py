"""What the optimizers of this distribution have in common: the rate, its schedule, and their facts. Light."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.errors import TrainingError, fail

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import ParameterGroup
    from nlpkernel.hookspecs.optimizer import Schedule

#: A group as torch's optimizers take it.
TorchGroup = dict[str, Any]

#: Said by `check` of an optimizer that cannot skip an update by a flag on the device.
READS = "the optimizer is not fused, so each step pays one read of the device"


@component
class Optimizer(ABC):
    """Base of the optimizers: a peak rate, and a schedule that says what part of it applies at each update."""

    #: "elementwise" or "whole_tensor": whether the update of one element depends on that element alone.
    need: ClassVar[str] = "elementwise"

    lr: float = setting(gt=0, help="peak learning rate")
    scale_lr: Literal["none", "linear", "sqrt"] = setting(
        default="none",
        help="multiply the rate by the number of workers (linear), by its square root (sqrt), or leave it (none)",
    )
    schedule: Any = extension(
        "schedule", default="constant", help="the rate over the run, as a part of the peak"
    )

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """Make the nested schedule."""
        schedule: Schedule = run.ask(self.schedule, "create_schedule", run=run, updates=updates)
        return schedule

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Add the bytes of the optimizer's state."""
        count = facts.parameters if facts.trainable is None else facts.trainable
        if count is None:
            return facts
        width = (
            facts.parameter_bytes / facts.parameters if facts.parameter_bytes and facts.parameters else 4.0
        )
        return attrs.evolve(facts, optimizer_bytes=round(self.state_bytes(count, width)))

    @abstractmethod
    def state_bytes(self, parameters: int, width: float) -> float:
        """The size of the state of so many parameters of `width` bytes each."""

    def scale(self, run: Run) -> float:
        """The factor of the rate for the run's number of workers. Says so where it is not 1."""
        factor = {"none": 1.0, "linear": float(run.world), "sqrt": math.sqrt(run.world)}[self.scale_lr]
        if factor != 1.0:
            rate = (
                f"the peak rate {self.lr:g} times {factor:g} for {run.world} workers is {self.lr * factor:g}"
            )
            run.notice(type(self).__name__.lower(), rate)
        return factor

    def torch_groups(
        self, groups: Sequence[ParameterGroup], lr: float, weight_decay: float
    ) -> list[TorchGroup]:
        """Groups as torch takes them: names in the order of the tensors, the peak rate, and decay where it applies.

        Groups that differ in their tags alone are one, since each costs calls of its own in every step. A group of
        which this worker steps nothing stays, empty: all workers have the same groups. Raises TrainingError OPT001
        where there is nothing to train.
        """
        if not groups:
            raise fail(
                TrainingError, "OPT001", "there is nothing to train: no parameter was given to the optimizer"
            )
        made: dict[float, TorchGroup] = {}
        for group in groups:
            decay = weight_decay if group.decay else 0.0
            one = made.setdefault(decay, {"params": [], "names": [], "lr": lr, "weight_decay": decay})
            one["params"] += group.tensors
            one["names"] += group.names
        return list(made.values())
