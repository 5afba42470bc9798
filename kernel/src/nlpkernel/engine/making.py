"""What the plan's optimizer section makes, the same for workers and for servers that step in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.model import ParameterGroup
    from nlpkernel.hookspecs.optimizer import Schedule
    from nlpkernel.plan import Composition
    from nlpkernel.plugins.hooks import Hooks

MakeOptimizer = Callable[[Sequence["ParameterGroup"]], "torch.optim.Optimizer"]
MakeSchedule = Callable[[int], "Schedule"]


def optimizer_maker(run: Run, hooks: Hooks, composition: Composition) -> MakeOptimizer:
    """Makes the plan's optimizer of parameter groups; each of its own groups has its "peak" rate."""
    component = composition.slot("optimizer").component

    def make(groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = hooks.ask(component, "create_optimizer", run=run, groups=groups)
        for group in optimizer.param_groups:
            group.setdefault("peak", group["lr"])
        return optimizer

    return make


def schedule_maker(run: Run, hooks: Hooks, composition: Composition) -> MakeSchedule:
    """Makes the plan's schedule for a number of updates."""
    component = composition.slot("optimizer").component

    def make(updates: int) -> Schedule:
        if not hasattr(component, "create_schedule"):
            return Constant()
        schedule: Schedule = hooks.ask(component, "create_schedule", run=run, updates=updates)
        return schedule

    return make


class Constant:
    """The schedule of an optimizer that has none."""

    def factor(self, update: int) -> float:
        """Always the peak."""
        return 1.0

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Metrics change nothing."""

    def state(self) -> Mapping[str, Any]:
        """Nothing to remember."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""
