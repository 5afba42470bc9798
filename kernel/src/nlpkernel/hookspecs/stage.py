"""The extension point `stage`: what is done to documents between their files and the tokenizer, in plan order.

What stages make is kept, by their settings and releases. A component whose result depends on the release of another
distribution names it in a class variable `libraries`, a tuple of names; so do readers and tokenizers. The run's seed is
not for stages: what they make is kept without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import attrs

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    from nlpkernel.context import Run


class Documents(NamedTuple):
    """Some documents, one after the other.

    texts: never empty. columns: what else is known of each ("label", ...), by name: texts, numbers, truth values, None.
    names: where each comes from: "corpus/a.jsonl:120".
    """

    texts: Sequence[str]
    columns: Mapping[str, Sequence[Any]]
    names: Sequence[str]


@attrs.frozen(kw_only=True)
class Outcome:
    """What a stage made of some documents.

    texts: all of them, changed or not; None where none is changed. A text that becomes empty is dropped, and counted
    as such. dropped: index to the reason, in words that the report counts by ("shorter than 20 characters"). counts:
    what else the report should count ("e-mail addresses masked"). notes: index to what a person who asks for this
    document should know ("language de, 0.98").
    """

    texts: Sequence[str] | None = None
    dropped: Mapping[int, str] = attrs.field(factory=dict)
    counts: Mapping[str, int] = attrs.field(factory=dict)
    notes: Mapping[int, str] = attrs.field(factory=dict)


class Stage(Protocol):
    """One stage, opened.

    ordered: it has to see all documents, each once and in order, in one process (what finds duplicates); otherwise
    what it makes of a document depends on that document alone, and several processes share the work.
    """

    ordered: bool

    def apply(self, documents: Documents) -> Outcome:
        """Do the work. Raise DataError for a document that must stop the run."""

    def finish(self, folder: Path) -> Sequence[str]:
        """There are no more documents: write what else was found into an empty folder of this stage's own, and say what
        a person should read now, a line each. Called once, and for a stage that is not `ordered` in one process."""


@hook("pick")
def create_stage(run: Run) -> Stage:  # type: ignore[empty-body]
    """Make the stage. One that is not `ordered` is made in each process that works on it. Raise DataError where what it
    needs is not there."""


POINT = Point(
    name="stage", must=("create_stage",), help="what is done to documents before they are tokenized"
)
