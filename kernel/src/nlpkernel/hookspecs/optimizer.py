"""The slot `optimizer`, and the extension point `schedule`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import torch

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.model import ParameterGroup


class Schedule(Protocol):
    """The rate over a run, as a factor of each group's own rate."""

    def factor(self, update: int) -> float:
        """The factor for the update number `update` (from 0: applied ones only)."""

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Told of each evaluation's metrics. Most schedules ignore it."""

    def state(self) -> Mapping[str, Any]:
        """What `factor` needs beside `update`: empty for most."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""


@hook("pick")
def create_optimizer(run: Run, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:  # type: ignore[empty-body]
    """Make the optimizer. Only the communicator's group steps it.

    Each of torch's param groups holds "lr", its rate at factor 1, and "names", the names of its parameters in order.
    A group of which this worker steps nothing is empty and stays, so that all workers have the same groups.
    The engine keeps that rate as "peak", and the group sets "lr" before each update. A component declares `need =
    "elementwise"` or `need = "whole_tensor"`: whether its update of one element depends on that element alone. An
    optimizer that honours torch's `found_inf` attribute (torch's fused ones do) has `_step_supports_amp_scaling =
    True`; with others each step pays one read on the host.
    """


@hook("pick")
def create_schedule(run: Run, updates: int | None) -> Schedule:  # type: ignore[empty-body]
    """Make the schedule for a run of `updates` updates (None: nobody knows how many). An optimizer that does not
    implement it has a constant rate."""


OPTIMIZER = Point(
    name="optimizer",
    slot=True,
    must=("create_optimizer",),
    may=("create_schedule",),
    help="how gradients become updates, and the rate over the run",
)
SCHEDULE = Point(name="schedule", must=("create_schedule",), help="the rate over a run")
