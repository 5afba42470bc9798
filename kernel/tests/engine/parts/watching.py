"""Components that watch a run, or disturb it: monitors, policies, hooks of every kind."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import attrs
import torch
from torch import nn

from nlpkernel import component, hookimpl, setting
from nlpkernel.events import Event
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel_sdk.notes import note


@component
class Spy:
    """Writes down what hooks tell, and the weights at the end of the run."""

    book: str = setting(default="spy", help="where to write")
    gradients: bool = setting(default=False, help="write gradients down")

    @hookimpl
    def subscribe(self, run, bus):
        note(self.book, "subscribe")

    @hookimpl
    def gradients_ready(self, run, named, stage):
        if self.gradients:
            note(self.book, stage, {name: tensor.clone() for name, tensor in named})

    @hookimpl
    def update_applied(self, run, progress, applied):
        note(self.book, "applied", progress.step, applied)

    @hookimpl
    def weights_for(self, run, use):
        return self._used(use)

    @contextmanager
    def _used(self, use: str) -> Iterator[None]:
        note(self.book, "enter", use)
        yield
        note(self.book, "leave", use)

    @hookimpl
    def close(self, run):
        weights = {}
        if run.model is not None:
            weights = {name: tensor.clone() for name, tensor in run.model.module.state_dict().items()}
        note(self.book, "close", weights)


@component
class Closer:
    """Writes down that it was closed, and may fail to."""

    book: str = setting(default="closed", help="where to write")
    name: str = setting(help="what to write")
    fails: bool = setting(default=False, help="raise")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def close(self):
        note(self.book, self.name)
        if self.fails:
            raise RuntimeError(f"{self.name} does not close")


@component
class Halver:
    """Halves the gradients of this worker."""

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def gradients_ready(self, named, stage):
        if stage == "local":
            for _, tensor in named:
                tensor.mul_(0.5)


@component
class Other:
    """Evaluates with other weights than it trains with."""

    value: float = setting(help="what every weight is during an evaluation")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def weights_for(self, run, use):
        return self._swapped(run.model.module)

    @contextmanager
    def _swapped(self, module: nn.Module) -> Iterator[None]:
        kept = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        with torch.no_grad():
            for tensor in module.parameters():
                tensor.fill_(self.value)
        yield
        module.load_state_dict(kept)


@component
class Backward:
    """Owns `backward`: fills the gradients itself, as thrice those of the loss."""

    book: str = setting(default="backward", help="where to write")
    fails: bool = setting(default=False, help="raise instead")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def backward(self, run, loss, sums):
        if self.fails:
            raise RuntimeError("no gradients today")
        note(self.book, sorted(sums))
        (loss * 3).backward()


@component
class Counter:
    """Counts updates, and keeps its count in versions."""

    book: str = setting(default="counter", help="where to write")
    refuses: bool = setting(default=False, help="refuse any state")

    count: int = attrs.field(init=False, default=0)

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def update_applied(self, applied):
        self.count += applied
        note(self.book, self.count)

    @hookimpl
    def component_state(self):
        return self

    def state(self) -> Mapping[str, Any]:
        return {"count": self.count, "tensor": torch.tensor([float(self.count)])}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if self.refuses:
            raise ValueError("what is this")
        assert float(state["tensor"]) == state["count"]
        self.count = state["count"]


@component
class Script:
    """A policy that says what it is told to, at given steps."""

    book: str = setting(default="script", help="where to write what it was asked")
    at: dict[str, Literal["SAVE", "STOP", "ROLLBACK", "FAIL"]] = setting(
        factory=dict, help="what to say, by step"
    )
    always: bool = setting(default=True, help="say it again when the step is run again")

    _said: set[int] = attrs.field(init=False, factory=set)

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def decide(self, progress, metrics):
        note(self.book, progress.step, dict(metrics))
        action = self.at.get(str(progress.step))
        if action is None or (not self.always and progress.step in self._said):
            return None
        self._said.add(progress.step)
        return Decision(Action[action], f"{action.lower()} at {progress.step}")


@component
class Kill:
    """Sends this process a signal in the middle of a step, an evaluation, or a save."""

    where: Literal["open", "step", "evaluation", "save"] = setting(help="in the middle of what")
    number: int = setting(help="the signal")
    step: int = setting(default=3, help="in or after which step")
    times: int = setting(default=1, help="how often")

    @hookimpl
    def subscribe(self, run, bus):
        if self.where == "open":
            self._send()

    @hookimpl
    def gradients_ready(self, run, stage):
        if self.where == "step" and stage == "global" and run.progress.step == self.step - 1:
            self._send()

    @hookimpl
    def weights_for(self, run, use):
        if self.where == "evaluation" and use == "evaluate" and run.progress.step == self.step:
            self._send()
        return nullcontext()

    @hookimpl
    def component_state(self, run):
        return _KillInSave(self, run)

    def _send(self) -> None:
        for _ in range(self.times):
            signal.raise_signal(self.number)


class _KillInSave:
    def __init__(self, killer: Kill, run: Any) -> None:
        self.killer, self.run = killer, run
        self.done = False

    def state(self) -> Mapping[str, Any]:
        if self.killer.where == "save" and self.run.progress.step == self.killer.step and not self.done:
            self.done = True
            self.killer._send()
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """There is none."""


@component
class Draws:
    """Draws from every generator when the run closes, and in each evaluation."""

    book: str = setting(default="draws", help="where to write")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def weights_for(self):
        self._draw()
        return self._drawing()

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        yield

    @hookimpl
    def close(self):
        note(self.book, *self._draw())

    def _draw(self) -> tuple[float, float, float]:
        import random

        import numpy

        return random.random(), float(numpy.random.random()), float(torch.rand(()))


@component
class Broken:
    """Fails in whatever it is told to fail in."""

    where: Literal["event", "gradients", "decide"] = setting(help="in what")

    @hookimpl
    def subscribe(self, bus):
        bus.on(Event, self._heard)

    def _heard(self, event: Event) -> None:
        if self.where == "event":
            raise RuntimeError("deaf")

    @hookimpl
    def gradients_ready(self):
        if self.where == "gradients":
            raise RuntimeError("blind")

    @hookimpl
    def decide(self):
        if self.where == "decide":
            raise RuntimeError("undecided")


@component
class Slow:
    """Takes three seconds for each evaluation; see the fixture `clock`."""

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def weights_for(self):
        time.sleep(3.0)
        return nullcontext()


@component
class Warner:
    """Warns, and logs."""

    @hookimpl
    def subscribe(self, run):
        warnings.warn("look out", stacklevel=1)
        run.log(self).info("all is well")


@component
class Lagging:
    """Takes its time in given steps; see the fixture `clock`."""

    steps: dict[str, float] = setting(help="seconds by step")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def gradients_ready(self, run, stage):
        if stage == "local":
            time.sleep(self.steps.get(str(run.progress.step + 1), 0.0))
