"""What components are asked and told in the first steps of a plan, one line a call, with the time that it took."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import attrs

from nlpkernel.engine.api import Loop
from nlpkernel.plan import Plan


@attrs.define
class Call:
    """One call: whom (component and distribution), what (a hook, or an event's class), in which phase of the run, how
    many other calls it was made within, when (seconds from the beginning), and how long it took, those within
    included; `own` leaves those out."""

    owner: str
    what: str
    phase: str
    depth: int
    start: float
    seconds: float = 0.0
    own: float = 0.0


@attrs.define
class Calls:
    """Notes every call that a run makes; `nlpkernel.plugins.hooks.Watch` of `Loop`."""

    calls: list[Call] = attrs.field(factory=list)
    phase: str = "opening"
    _begun: float = attrs.field(factory=perf_counter)
    _within: list[Call] = attrs.field(factory=list)

    @contextmanager
    def __call__(self, owner: str, what: str) -> Iterator[None]:
        """Note a call for as long as it lasts."""
        start = perf_counter()
        call = Call(owner, what, self.phase, len(self._within), start - self._begun)
        self.calls.append(call)
        self._within.append(call)
        try:
            yield
        finally:
            self._within.pop()
            call.seconds = perf_counter() - start
            call.own += call.seconds
            if self._within:
                self._within[-1].own -= call.seconds


def trace(plan: Plan, steps: int, *, quiet: bool = False) -> Sequence[Call]:
    """The calls of the first `steps` steps, of the evaluation and the save after them, and of the closing, in the order
    in which they began. Nothing is left of the run."""
    calls = Calls()
    with tempfile.TemporaryDirectory(prefix="nlpkernel-trace-") as folder:
        loop = Loop(plan, Path(folder) / plan.name, limit=steps, quiet=quiet, rehearsal=True, watch=calls)
        calls.phase = "opening and step 1"
        for session in loop.steps():
            step = session.progress.step
            calls.phase = f"step {step + 1}" if step < session.end else "ending"
    return calls.calls
