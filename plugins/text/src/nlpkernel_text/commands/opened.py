"""A plan's data component as a run would have it, for commands that look at the data."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nlpkernel.errors import UsageError, fail

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.component import Text


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[tuple[Text, Run]]:
    """The data of the plan that a command is asked about, and a run of it that trains nothing. Notices go to standard
    error, with --quiet the warnings alone. Raise PlanError with every mistake, UsageError (TXT019) where the data is no
    text."""
    from nlpkernel.engine.environment import environment
    from nlpkernel.engine.opening import activate
    from nlpkernel.events import Notice
    from nlpkernel.plan import Plan
    from nlpkernel_text.component import Text

    plan = Plan.load(args.plan, args.overrides)

    def hear(event: Notice) -> None:
        if event.level != "info" or not args.quiet:
            sys.stderr.write(f"{event.source}: {event.message}\n")

    with tempfile.TemporaryDirectory() as folder, environment(plan.train):
        run, hooks, composition = activate(plan, Path(folder))
        try:
            run.rehearsal = run.quiet = True
            run.bus.owner = "the command"
            run.bus.on(Notice, hear)
            component = composition.slot("data").component
            if not isinstance(component, Text):
                kind = composition.slot("data").found.owner
                raise fail(UsageError, "TXT019", f"the data of {args.plan} is not `text`, but {kind}")
            yield component, run
        finally:
            hooks.close(run=run)
