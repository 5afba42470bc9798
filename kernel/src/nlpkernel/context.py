"""The run as components see it."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel.bus import Bus
from nlpkernel.events import Notice, Working
from nlpkernel.plan.train import Train
from nlpkernel.progress import Progress
from nlpkernel.supervise.heartbeat import Pulse

if TYPE_CHECKING:
    import torch

    from nlpkernel.hookspecs.communicator import Group
    from nlpkernel.hookspecs.data import Data
    from nlpkernel.hookspecs.model import Model
    from nlpkernel.plugins.hooks import Hooks


class Task:
    """Progress of long work outside the steps; told on the bus at most ten times a second."""

    def __init__(
        self, bus: Bus, what: str, total: float | None, unit: str, pulse: Pulse | None = None
    ) -> None:
        self._bus, self._what, self._total, self._unit = bus, what, total, unit
        self._pulse = pulse or Pulse()
        self._done = 0.0
        self._told = 0.0

    def advance(self, amount: float = 1.0) -> None:
        """So much more is done."""
        self._done += amount
        self._pulse.moves += 1
        now = time.monotonic()
        if now - self._told >= 0.1:
            self._told = now
            self.tell()

    def tell(self) -> None:
        """Tell where the work stands."""
        self._bus.publish(
            Working(time=time.time(), what=self._what, done=self._done, total=self._total, unit=self._unit)
        )


@attrs.define(kw_only=True, eq=False, slots=False)
class Run:
    """One execution of a plan, as hooks get it.

    folder: the run's own folder. cache: a folder shared by all runs, for what can be made again. device, group, data,
    model are there from the moment that the engine opened them. quiet: whoever started the run wants to see warnings
    only. rehearsal: nothing is to be left outside `folder`. counts: what was skipped or repaired, by (who, what).
    optimizer_need: "elementwise" where the update of one element depends on that element alone, else "whole_tensor".
    end: the step after which the run ends, once it is known.
    launch: a word that all processes of one start share, and no other start has. process: the name that the
    communicator gave this process; "" where nobody did. rank: -1 in one that is no worker. pulse: where the loop is;
    work that takes minutes moves it (`run.pulse.moves += 1`, or by `working`), or it looks stuck.
    """

    name: str
    folder: Path
    cache: Path
    train: Train
    bus: Bus = attrs.field(factory=Bus)
    hooks: Hooks | None = None
    rank: int = 0
    world: int = 1
    process: str = ""
    optimizer_need: str = "whole_tensor"
    end: int | None = None
    device: torch.device | None = None
    group: Group | None = None
    data: Data | None = None
    model: Model | None = None
    quiet: bool = False
    rehearsal: bool = False
    launch: str = attrs.field(factory=lambda: secrets.token_hex(8))
    progress: Progress = attrs.field(factory=Progress)
    pulse: Pulse = attrs.field(factory=Pulse)
    counts: Counter[tuple[str, str]] = attrs.field(factory=Counter)

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.train.seed

    def ask(self, component: object, hook: str, **arguments: Any) -> Any:
        """Ask one component (a nested one, say) a hook, with this run as `run`; a failure names it and its
        distribution."""
        if self.hooks is None:
            # A run that a test made by itself.
            from nlpkernel.plugins.hooks import Hooks

            self.hooks = Hooks()
        return self.hooks.ask(component, hook, **{"run": self, **arguments})

    def log(self, component: object) -> logging.Logger:
        """The logger of a component: a child of `nlpkernel`."""
        return logging.getLogger(f"nlpkernel.{type(component).__module__.partition('.')[0]}")

    def notice(self, source: str, message: str, *, level: str = "info") -> None:
        """Say something that a person should read; it is shown, logged and kept in the events."""
        logging.getLogger("nlpkernel").log(
            logging.WARNING if level == "warning" else logging.INFO, "%s: %s", source, message
        )
        self.bus.publish(Notice(time=time.time(), level=level, source=source, message=message))

    def count(self, source: str, what: str, number: int = 1) -> None:
        """Account for something skipped, dropped or repaired; the report lists all of it."""
        if number:
            self.counts[source, what] += number

    @contextmanager
    def working(self, what: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        """Show progress of long work before the first step: `with run.working("reading", 12, "files") as task`."""
        task = Task(self.bus, what, total, unit, self.pulse)
        task.tell()
        yield task
        task.tell()
