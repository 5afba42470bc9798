"""What the tokenizer commands share: components outside of a run, and the texts of a plan."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.errors import PlanError, UsageError, fail

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.plan.train import Train
    from nlpkernel_text.component import Text
    from nlpkernel_text.corpus import Corpus


def json_argument(parser: argparse.ArgumentParser) -> None:
    """For machines."""
    parser.add_argument("--json", action="store_true", help="for machines")


@contextmanager
def working_run(train: Train | None = None, *, quiet: bool = False) -> Iterator[Run]:
    """A run that trains nothing, for what components are asked outside of one. Its notices go to standard error, with
    `quiet` the warnings alone."""
    from nlpkernel.context import Run
    from nlpkernel.events import Notice
    from nlpkernel.plan.train import Train
    from nlpkernel.runs import cache_folder

    def say(event: Notice) -> None:
        if event.level != "info" or not quiet:
            sys.stderr.write(f"{event.source}: {event.message}\n")

    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            name="tokenizer",
            folder=Path(folder),
            cache=cache_folder(),
            train=train or Train(steps=1, policy=()),
            quiet=quiet,
            rehearsal=True,
        )
        run.bus.owner = "the command"
        run.bus.on(Notice, say)
        yield run


def text_of_plan(path: str, overrides: Sequence[str]) -> tuple[Text, Train]:
    """The data component of a plan, and its section [train]. Raise PlanError with every mistake, UsageError (TXT019)
    where the data is no text."""
    from nlpkernel.plan import Plan

    composition = Plan.load(path, overrides).compose()
    return as_text(composition.slot("data").component, path), composition.train


def as_text(component: object, whose: str) -> Text:
    """A data component that is this distribution's. Raise UsageError (TXT019) for another."""
    from nlpkernel_text.component import Text

    if not isinstance(component, Text):
        kind = type(component).__name__
        message = f"the data of {whose} is not `text`, but a component {kind}, whose tokenizer is not known"
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


def documents(text: Text, run: Run) -> Corpus:
    """The documents of a plan, cleaned where it has stages. Raise DataError for all that is wrong with them."""
    from nlpkernel_text.building import Building
    from nlpkernel_text.cleaning import kept
    from nlpkernel_text.reading.faults import Faults

    building = Building(text, run)
    corpus = building.corpus
    cleaned = building.cleaned()
    if cleaned is not None:
        corpus.cleaned(kept.Kept(cleaned.folder / kept.NAME, cleaned.facts["documents"]), None)
    else:
        with run.working("reading") as work:
            corpus.measure(Faults(text.on_error == "skip"), work)
    return corpus
