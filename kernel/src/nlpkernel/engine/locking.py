"""The lock of a plan that is not run: everything is opened up to the first step, and closed again."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import attrs

from nlpkernel.engine.environment import environment
from nlpkernel.engine.opening import open_session
from nlpkernel.lock import Locked
from nlpkernel.plan import Plan
from nlpkernel.supervise.launch import wanted


def lock_of(plan: Plan, *, quiet: bool = False) -> Locked:
    """What exactly a plan would run now. Nothing is kept of it but caches. Raise what running it would raise before its
    first step."""
    with tempfile.TemporaryDirectory(prefix="nlpkernel-lock-") as folder, ExitStack() as stack:
        stack.enter_context(environment(plan.train))
        session = open_session(plan, Path(folder), stack, quiet=quiet, rehearsal=True)
        # It was opened by one process, whatever the plan wants.
        workers = sum(spec.rank is not None for spec in wanted(plan, Path(folder))) or 1
        opened = attrs.evolve(session.lock.opened, world=workers)
        return Locked(plan=plan.text(), lock=attrs.evolve(session.lock, opened=opened).plain())
