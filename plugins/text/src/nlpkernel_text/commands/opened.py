"""What commands look at: a plan's data as a run would have it, and components outside of any plan."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.errors import PlanError, UsageError, fail

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.component import Text


@contextmanager
def opened(plan: str, overrides: Sequence[str], *, quiet: bool) -> Iterator[tuple[Text, Run]]:
    """The data of a plan, and a run of it that trains nothing. Notices go to standard error, with `quiet` the warnings
    alone. Raise PlanError with every mistake, UsageError (TXT019) where the data is no text."""
    from nlpkernel.engine.environment import environment
    from nlpkernel.engine.opening import activate
    from nlpkernel.plan import Plan

    loaded = Plan.load(plan, overrides)
    with tempfile.TemporaryDirectory() as folder, environment(loaded.train):
        run, hooks, composition = activate(loaded, Path(folder))
        try:
            run.rehearsal, run.quiet = True, quiet
            _hear(run)
            yield as_text(composition.slot("data").component, plan), run
        finally:
            hooks.close(run=run)


@contextmanager
def working_run(*, quiet: bool) -> Iterator[Run]:
    """A run without a plan, for what components are asked outside of one. Notices as with `opened`."""
    from nlpkernel.context import Run
    from nlpkernel.plan.train import Train
    from nlpkernel.runs import cache_folder

    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            name="command",
            folder=Path(folder),
            cache=cache_folder(),
            train=Train(steps=1, policy=()),
            quiet=quiet,
            rehearsal=True,
        )
        _hear(run)
        yield run


def as_text(component: object, whose: str) -> Text:
    """A data component that is this distribution's. Raise UsageError (TXT019) for another."""
    from nlpkernel_text.component import Text

    if not isinstance(component, Text):
        kind = type(component).__name__
        message = f"the data of {whose} is not `text`, but a component {kind}"
        raise fail(UsageError, "TXT019", message)
    return component


def structured(point: str, values: Mapping[str, Any], overrides: Sequence[str] = ()) -> Any:
    """A component made of plain values, as if a plan in the working folder held them in the section `point`. Raise
    PlanError with every mistake."""
    from nlpkernel.plan.load import load_mapping
    from nlpkernel.plan.structure import Structuring
    from nlpkernel.plugins.catalog import Catalog

    root, problems = load_mapping({point: values}, base=Path.cwd(), overrides=overrides)
    work = Structuring(Catalog())
    component, _ = work.component(point, root.value[point], point)
    if problems or work.problems:
        raise PlanError([*problems, *work.problems])
    return component


def _hear(run: Run) -> None:
    from nlpkernel.events import Notice

    def say(event: Notice) -> None:
        if event.level != "info" or not run.quiet:
            sys.stderr.write(f"{event.source}: {event.message}\n")

    # A notice is logged too; without a handler, logging would write warnings to standard error by itself.
    logging.getLogger("nlpkernel").addHandler(logging.NullHandler())
    run.bus.owner = "the command"
    run.bus.on(Notice, say)
