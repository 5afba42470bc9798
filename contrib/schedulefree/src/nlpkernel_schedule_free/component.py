"""The components, as a plan sees them. Light: torch is imported when an optimizer is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import TrainingError, fail

if TYPE_CHECKING:
    import torch

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import ParameterGroup
    from nlpkernel.hookspecs.optimizer import Schedule
    from nlpkernel_schedule_free.rules import ScheduleFree

_BETA = "weight of the average x in the point y = (1 - beta) z + beta x at which gradients are taken"
_WARMUP = "updates over which the rate rises to lr; after them it stays"


@component
class Base(ABC):
    """What the optimizers without a schedule have in common."""

    #: Squares of rates are added up in float32, also those of a long rise.
    lr: float = setting(
        ge=1e-12, help="rate; often twice to ten times that of the same optimizer with a schedule"
    )
    beta: float = setting(default=0.9, gt=0, lt=1, help=_BETA)
    weight_decay: float = setting(default=0.0, ge=0, help="decay of the weights at y, times the rate")
    warmup: int = setting(default=0, ge=0, help=_WARMUP)

    #: The update of an element depends on that element alone.
    need: ClassVar[str] = "elementwise"
    #: Tensors of a parameter's shape that the state has.
    kept: ClassVar[int] = 1

    _optimizer: Any = attrs.field(init=False, default=None)

    @abstractmethod
    def make(self, tables: list[dict[str, Any]]) -> ScheduleFree:
        """Make the optimizer of torch's param groups."""

    @hookimpl
    def create_optimizer(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """One of torch's param groups for each group. Raise TrainingError: SFR001 where there is nothing to train,
        SFR002 where parameters are of a type in which an average stands still."""
        if not groups:
            raise fail(TrainingError, "SFR001", "no parameter was given to the optimizer", owner=_OWNER)
        coarse = [
            (name, tensor.dtype)
            for group in groups
            for name, tensor in zip(group.names, group.tensors, strict=True)
            if tensor.dtype.itemsize < 4
        ]
        if coarse:
            name, kind = coarse[0]
            raise fail(
                TrainingError,
                "SFR002",
                f"{len(coarse)} parameters are {kind}, {name} first, and an average of them would soon stand still",
                owner=_OWNER,
                hint='keep float32 parameters: precision = { use = "bf16", parameters = "fp32" }',
            )
        made = self._optimizer = self.make(
            [
                {
                    "params": list(group.tensors),
                    "names": list(group.names),
                    "lr": self.lr,
                    "weight_decay": self.weight_decay if group.decay else 0.0,
                }
                for group in groups
            ]
        )
        optimizer: torch.optim.Optimizer = made
        return optimizer

    @hookimpl
    def create_schedule(self) -> Schedule:
        """The rise, and a constant rate."""
        from nlpkernel_schedule_free.rate import Rise

        return Rise(self.warmup)

    @hookimpl
    def weights_for(self, run: Run) -> AbstractContextManager[None]:
        """The average x. Raise TrainingError (SFR003) where there were updates, and the state that they left is not on
        this worker."""
        if run.progress.updates and self._optimizer.lacks_state:
            raise fail(
                TrainingError,
                "SFR003",
                f"after {run.progress.updates} updates this worker has no state of the optimizer, without which there "
                "is no average to evaluate",
                owner=_OWNER,
                hint="use a communicator whose workers step their own parameters",
            )
        held: AbstractContextManager[None] = self._optimizer.averaged()
        return held

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Bytes of the state, in the type of the parameters."""
        count = facts.parameters if facts.trainable is None else facts.trainable
        if count is None:
            return facts
        width = (
            facts.parameter_bytes / facts.parameters if facts.parameter_bytes and facts.parameters else 4.0
        )
        return attrs.evolve(facts, optimizer_bytes=round(self.kept * count * width))

    @hookimpl
    def misfits(self, facts: Facts) -> Iterator[tuple[str, str]]:
        """Layouts in which a worker does not have what makes its own weights the average."""
        if facts.optimizer_parts != facts.parameter_parts:
            yield (
                "beta",
                "a worker would hold whole weights and the state of a part of them, and could not make the rest the "
                "average; shard 0 and 3 divide both alike",
            )
        if facts.trainable and facts.optimizer_bytes == 0:
            yield (
                "beta",
                "the optimizer's state is not on the workers, which need it to make their weights the average",
            )


@component
class ScheduleFreeAdamW(Base):
    """AdamW without a schedule (Defazio et al., 2024, "The Road Less Scheduled", algorithm 1).

    Evaluations see an average of the weights. The rate is constant but for a rise at the beginning.
    """

    beta2: float = setting(default=0.999, ge=0, lt=1, help="decay of the second moment")
    eps: float = setting(default=1e-8, gt=0, help="added to the root of the second moment")

    kept: ClassVar[int] = 2

    def make(self, tables: list[dict[str, Any]]) -> ScheduleFree:
        """Make AdamW."""
        from nlpkernel_schedule_free.rules import AdamW

        return AdamW(tables, beta=self.beta, beta2=self.beta2, eps=self.eps)


@component
class ScheduleFreeSgd(Base):
    """Gradient descent without a schedule (Defazio et al., 2024, "The Road Less Scheduled").

    Evaluations see an average of the weights. The rate is constant but for a rise at the beginning.
    """

    def make(self, tables: list[dict[str, Any]]) -> ScheduleFree:
        """Make SGD."""
        from nlpkernel_schedule_free.rules import Sgd

        return Sgd(tables, beta=self.beta)


_OWNER = "nlpkernel-plugin-schedule-free"
