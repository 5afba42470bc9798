"""A dry run: two steps, one evaluation, one save; and what the full run would cost."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs

from nlpkernel.engine.api import Loop
from nlpkernel.engine.environment import memory_in_use
from nlpkernel.events import Evaluated, Event, StepCompleted, VersionSaved
from nlpkernel.plan import Plan
from nlpkernel.plan.units import format_unit

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
            f"  step        {self.step:.3g} s, {self.length:,} of them",
            f"  evaluation  {self.evaluation:.3g} s, {self.evaluations:,} of them",
        ]
        if self.bytes:
            lines.append(f"  version     {format_unit(self.bytes, 'bytes')}, {self.save:.3g} s")
        if self.memory:
            lines.append(f"  memory      {format_unit(self.memory, 'bytes')} in use")
        return "\n".join([*lines, f"the full run would take about {self.total:,.0f} s; nothing was kept"])


def rehearse(plan: Plan) -> Rehearsed:
    """Run two steps of a plan in a folder that is removed, and reckon up the whole."""
    events: list[Event] = []

    def listen(event: Event) -> None:
        if isinstance(event, (StepCompleted, Evaluated, VersionSaved)):
            events.append(event)

    with tempfile.TemporaryDirectory(prefix="nlpkernel-dry-run-") as folder:
        loop = Loop(plan, Path(folder) / plan.name, listen=listen, limit=STEPS)
        for _ in loop.steps():
            pass
        session = loop.session
        assert session is not None, "a run that was not opened has raised"
        steps = [event.time for event in events if isinstance(event, StepCompleted)]
        between = [
            event.seconds
            for event in events
            if isinstance(event, (Evaluated, VersionSaved)) and steps[0] < event.time <= steps[-1]
        ]
        saves = [event for event in events if isinstance(event, VersionSaved)]
        evaluations = [event for event in events if isinstance(event, Evaluated)]
        every = plan.train.evaluate.every
        splits = max(1, len({event.split for event in evaluations}))
        return Rehearsed(
            length=session.length,
            step=steps[-1] - steps[0] - sum(between) if len(steps) > 1 else 0.0,
            evaluation=sum(event.seconds for event in evaluations[-splits:]),
            evaluations=(session.length // every if every else 0)
            + (every is None or session.length % every > 0),
            save=saves[-1].seconds if saves else 0.0,
            bytes=saves[-1].bytes if saves else 0,
            memory=memory_in_use(session.group.device),
        )
