"""Observers of the tests: one that does nothing, one that is slow, one that draws, one that changes weights."""

import time

import torch

from nlpkernel import component, hookimpl, setting
from nlpkernel.events import StepCompleted


@component
class Idle:
    """Counts steps."""

    count: int = setting(default=0, ge=0, help="steps so far")

    @hookimpl
    def subscribe(self, run, bus):
        bus.on(StepCompleted, self._step)

    def _step(self, event):
        self.count += 1


@component
class Slow:
    """Waits in each step."""

    seconds: float = setting(default=0.004, gt=0, help="how long")

    @hookimpl
    def subscribe(self, run, bus):
        bus.on(StepCompleted, self._step)

    def _step(self, event):
        time.sleep(self.seconds)


@component
class Drawing:
    """Draws a number in each step."""

    @hookimpl
    def subscribe(self, run, bus):
        bus.on(StepCompleted, lambda event: torch.rand(1))


@component
class Meddling:
    """Changes a gradient."""

    @hookimpl
    def subscribe(self, run, bus):
        pass

    @hookimpl
    def gradients_ready(self, named, stage):
        if stage == "local":
            named[0][1].mul_(1.5)


@component
class Failing:
    """Cannot be opened."""

    @hookimpl
    def subscribe(self, run, bus):
        raise ValueError("it has no paper")
