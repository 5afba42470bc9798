"""The stages of a plan at work on a batch, and what they did, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from nlpkernel.errors import DataError, NlpkernelError, fail
from nlpkernel.hookspecs.stage import Documents, Outcome, Stage
from nlpkernel_text.cleaning.batches import Batch, Names

if TYPE_CHECKING:
    from nlpkernel.context import Run

_T = TypeVar("_T")

#: Why a document is dropped whose text a stage has emptied.
EMPTIED = "nothing left of the text"


@attrs.define
class Tally:
    """What one stage did: documents that came and that it changed, why it dropped how many, and what else it counts."""

    name: str
    came: int = 0
    changed: int = 0
    dropped: Counter[str] = attrs.field(factory=Counter)
    counts: Counter[str] = attrs.field(factory=Counter)

    def add(self, other: Tally) -> None:
        """Add what another process did."""
        self.came += other.came
        self.changed += other.changed
        self.dropped.update(other.dropped)
        self.counts.update(other.counts)

    def plain(self) -> dict[str, Any]:
        """As plain data, to keep."""
        return attrs.asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Tally:
        """From what `plain` gave."""
        return cls(
            plain["name"],
            plain["came"],
            plain["changed"],
            Counter(plain["dropped"]),
            Counter(plain["counts"]),
        )


def counts_of(tallies: Iterable[Tally]) -> Counter[tuple[str, str]]:
    """What stages did, by who did it and by its name in the report."""
    counts: Counter[tuple[str, str]] = Counter()
    for tally in tallies:
        source = f"stage {tally.name}"
        counts[source, "documents changed"] += tally.changed
        for reason, number in tally.dropped.items():
            counts[source, f"documents dropped: {reason}"] += number
        for what, number in tally.counts.items():
            counts[source, what] += number
    return counts


@attrs.define
class Opened:
    """A stage that is open, by the name that the report calls it."""

    name: str
    stage: Stage


#: Told what a stage made of a batch: its name, the batch, and the outcome.
Watch = Callable[[str, Batch, Outcome], None]


def names_of(run: Run, components: Sequence[object]) -> list[str]:
    """What the report calls the stages: their names in the plan; one that is there twice gets a number."""
    owners = [run.hooks.owner(each) if run.hooks is not None else type(each).__name__ for each in components]
    names = [owner.partition(" of ")[0] for owner in owners]
    return [
        name if names.count(name) == 1 else f"{name} {names[: number + 1].count(name)}"
        for number, name in enumerate(names)
    ]


def open_stages(run: Run, components: Sequence[object], names: Sequence[str]) -> list[Opened]:
    """Make the stages."""
    return [
        Opened(name, run.ask(component, "create_stage"))
        for name, component in zip(names, components, strict=True)
    ]


def finish(opened: Opened, folder: Path) -> list[str]:
    """End a stage; what a person should read now."""
    said = _asked(opened.name, lambda: opened.stage.finish(folder), ())
    return [f"{opened.name}: {line}" for line in said or ()]


def _asked(name: str, ask: Callable[[], _T], names: Sequence[str]) -> _T:
    """What a stage answers. Raise DataError (TXT031) with its name for an error that is its own."""
    try:
        return ask()
    except NlpkernelError:
        raise
    except Exception as error:
        where = f" at the documents {names[0]} to {names[-1]}" if names else " at its end"
        raise fail(
            DataError,
            "TXT031",
            f"the stage {name} raised {type(error).__name__}{where}: {error}",
            owner=name,
            hint="`nlpkernel data PLAN --trace DOCUMENT` shows what each stage does to one",
        ) from error


def apply(
    stages: Sequence[Opened], batch: Batch, shown: Sequence[str], watch: Watch | None = None
) -> tuple[Batch, list[Tally]]:
    """What the stages make of a batch, one after the other. Raise DataError (TXT031) for an outcome that does not
    fit."""
    tallies = []
    for opened in stages:
        tally = Tally(opened.name)
        tallies.append(tally)
        if not len(batch):
            continue
        documents = Documents(batch.texts, batch.columns, Names(shown, batch))
        outcome = _asked(opened.name, partial(opened.stage.apply, documents), documents.names)
        texts = batch.texts if outcome.texts is None else outcome.texts
        if len(texts) != len(batch) or any(not 0 <= number < len(batch) for number in outcome.dropped):
            raise fail(
                DataError,
                "TXT031",
                f"the stage {opened.name} got {len(batch)} documents and gave {len(texts)} texts"
                + (", and drops one that it did not get" if len(texts) == len(batch) else ""),
                owner=opened.name,
                hint="a stage gives as many texts as it gets, and names those that it drops",
            )
        dropped = outcome.dropped
        if outcome.texts is not None and not all(texts):
            emptied = {number: EMPTIED for number, text in enumerate(texts) if not text}
            dropped = {**emptied, **dropped}
        tally.came = len(batch)
        tally.changed = (
            0
            if outcome.texts is None
            else sum(
                number not in dropped and one is not two and one != two
                for number, (one, two) in enumerate(zip(batch.texts, texts, strict=True))
            )
        )
        tally.dropped.update(dropped.values())
        tally.counts.update({what: int(number) for what, number in outcome.counts.items()})
        if watch is not None:
            watch(opened.name, batch, attrs.evolve(outcome, dropped=dropped))
        batch = batch.kept(texts, dropped)
    return batch, tallies
