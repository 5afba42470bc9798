"""A dry run: two steps, one evaluation, one save; and what the full run would cost."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs

from nlpkernel.engine.api import Loop
from nlpkernel.engine.environment import memory_in_use
from nlpkernel.events import Evaluated, Event, Logged, VersionSaved
from nlpkernel.plan import Plan
from nlpkernel.words import duration, size

STEPS = 2


@attrs.frozen(kw_only=True)
class Rehearsed:
    """What a dry run measured. Seconds are of one step, one evaluation of all splits, one save."""

    length: int
    step: float
    evaluation: float
    evaluations: int
    save: float
    bytes: int
    memory: int

    @property
    def total(self) -> float:
        """Seconds of the full run, saves at the plan's intervals not counted."""
        return self.length * self.step + self.evaluations * self.evaluation + self.save

    def text(self) -> str:
        """As a person reads it."""
        lines = [
            f"dry run: {STEPS} steps, one evaluation"
            + (", one save" if self.bytes else "; the plan saves nothing"),
            f"  step        {duration(self.step)}, {self.length:,} of them",
            f"  evaluation  {duration(self.evaluation)}, {self.evaluations:,} of them",
        ]
        if self.bytes:
            lines.append(f"  version     {size(self.bytes)}, {duration(self.save)}")
        if self.memory:
            lines.append(f"  memory      {size(self.memory)} in use")
        return "\n".join([*lines, f"the full run would take about {duration(self.total)}; nothing was kept"])


def rehearse(plan: Plan, *, quiet: bool = False) -> Rehearsed:
    """Run two steps of a plan in a folder that is removed, and reckon up the whole. `quiet` is that of `Loop`."""
    events: list[Event] = []
    with tempfile.TemporaryDirectory(prefix="nlpkernel-dry-run-") as folder:
        place = Path(folder) / plan.name
        loop = Loop(plan, place, listen=events.append, limit=STEPS, quiet=quiet, rehearsal=True)
        for session in loop.steps():
            # The device is waited for after each step, or it would be measured how fast one can ask it.
            metrics = session.log()
            if metrics:
                session.decide(metrics)
        logs = [event for event in events if isinstance(event, Logged)]
        saves = [event for event in events if isinstance(event, VersionSaved)]
        evaluations = [event for event in events if isinstance(event, Evaluated)]
        every = plan.train.evaluate.every
        splits = max(1, len({event.split for event in evaluations}))
        return Rehearsed(
            length=session.length,
            step=logs[-1].seconds / logs[-1].steps,
            evaluation=sum(event.seconds for event in evaluations[-splits:]),
            evaluations=plan.train.evaluate.start
            + (session.length // every if every else 0)
            + (every is None or session.length % every > 0),
            save=saves[-1].seconds if saves else 0.0,
            bytes=saves[-1].bytes if saves else 0,
            memory=memory_in_use(session.group.device),
        )
