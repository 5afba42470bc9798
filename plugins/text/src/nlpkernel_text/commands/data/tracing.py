"""What each stage did to one document."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel.errors import UsageError, fail
from nlpkernel.hookspecs.stage import Outcome
from nlpkernel_text.building import TOKENIZER, Building
from nlpkernel_text.cleaning.batches import Batch, batches
from nlpkernel_text.cleaning.running import Cleaning
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.streams import SPLITS, open_stream

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.component import Text

#: Characters of a text, and tokens, that are shown.
_CHARACTERS, _TOKENS = 300, 24


@attrs.define
class _Traced:
    """What is found of the document, stage by stage."""

    file: int
    place: int
    text: str | None = None
    columns: dict[str, Any] = attrs.field(factory=dict)
    steps: list[dict[str, Any]] = attrs.field(factory=list)
    dropped: bool = False

    def find(self, batch: Batch) -> int | None:
        """Its number in a batch."""
        for number, (file, place) in enumerate(zip(batch.files, batch.places, strict=True)):
            if (file, place) == (self.file, self.place):
                return number
        return None

    def watch(self, name: str, batch: Batch, outcome: Outcome) -> None:
        """Look at what a stage made of a batch."""
        number = self.find(batch)
        if number is None:
            return
        before = batch.texts[number]
        after = before if outcome.texts is None else outcome.texts[number]
        dropped = outcome.dropped.get(number)
        step: dict[str, Any] = {"stage": name, "note": outcome.notes.get(number), "dropped": dropped}
        if after != before and dropped is None:
            step["changes"] = _changes(before, after)
        self.steps.append(step)
        self.text, self.dropped = after, dropped is not None


def trace(text: Text, run: Run, name: str, whole: Callable[[], Building]) -> tuple[object, list[str]]:
    """Follow the document `name` from its file to its tokens. Raise UsageError (TXT019) where there is none of this
    name."""
    corpus = Corpus(text, run)
    traced = _Traced(*_document(corpus, name))
    cleaning = Cleaning(run, text.stages, [each.shown for each in corpus.files], watch=traced.watch)
    faults = Faults(True)
    # A stage that has to see all documents is shown all that come before this one; others only its file.
    before = corpus.raw(faults, lambda size: None)
    alone = ((traced.file, chunk) for chunk in corpus.raw_file(traced.file, faults))

    def watched() -> Iterator[Batch]:
        for batch in batches(before if cleaning.ordered else alone):
            number = traced.find(batch)
            if number is not None:
                traced.text = batch.texts[number]
                traced.columns = {name: values[number] for name, values in batch.columns.items()}
            yield batch
            if number is not None:
                return

    for _ in cleaning.clean(watched()):
        pass
    if traced.text is None:
        raise fail(
            UsageError,
            "TXT019",
            f"there is no document at {name}",
            hint="a document is named by the line on which it begins, or by its number in a file of records",
        )
    lines = [f"document  {corpus.files[traced.file].shown}:{traced.place}"]
    lines += [f"  {name}: {value!r}" for name, value in traced.columns.items()]
    for step in traced.steps:
        done = (
            f"dropped: {step['dropped']}" if step["dropped"] else "changed" if "changes" in step else "kept"
        )
        note = f" ({step['note']})" if step["note"] else ""
        lines.append(f"{step['stage']}  {done}{note}")
        lines += [f"    {line}" for line in step.get("changes", ())]
    found: dict[str, Any] = {
        "document": f"{corpus.files[traced.file].shown}:{traced.place}",
        "columns": traced.columns,
        "steps": traced.steps,
        "dropped": traced.dropped,
        "text": traced.text,
    }
    if not traced.dropped:
        lines += ["text", *(f"    {line}" for line in _short(traced.text).split("\n"))]
        if text.stream is None:
            tokens = _tokens(whole(), run, traced)
            found["tokens"] = tokens
            lines += _told(tokens)
    return found, lines


def _document(corpus: Corpus, name: str) -> tuple[int, int]:
    shown, _, place = name.partition("+")[0].rpartition(":")
    for number, each in enumerate(corpus.files):
        if place.isdecimal() and (each.shown == shown or each.file.where == shown):
            return number, int(place)
    raise fail(
        UsageError,
        "TXT019",
        f"no file of the plan is called {shown or name!r}",
        hint=f"name a document as FILE:LINE; the first file is {corpus.files[0].shown}",
    )


def _changes(before: str, after: str) -> list[str]:
    """Lines that differ, as far as there is room."""
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=0)
    return [_short(line, 160) for line in list(lines)[2:] if not line.startswith("@@")][:12]


def _short(text: str, most: int = _CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def _tokens(building: Building, run: Run, traced: _Traced) -> dict[str, Any] | None:
    """The document's split and tokens; None where nothing of it is in the stream."""
    entry, _ = building.tokens()
    saved = (entry.folder / TOKENIZER).read_bytes()
    tokenizer = run.ask(building.text.tokenizer, "load_tokenizer", saved=saved)
    for split in SPLITS:
        stream = open_stream(entry.folder, split, entry.facts["type"])
        mine = ((stream.where[:, 0] == traced.file) & (stream.where[:, 1] == traced.place)).nonzero()[0]
        if len(mine):
            number = int(mine[0])
            end = int(stream.starts[number + 1]) if number + 1 < len(stream.starts) else len(stream.tokens)
            ids = stream.tokens[int(stream.starts[number]) : end]
            pieces = [tokenizer.decode([one]) for one in ids[:_TOKENS].tolist()]
            return {"split": split, "tokens": len(ids), "first": int(stream.starts[number]), "pieces": pieces}
    return None


def _told(tokens: dict[str, Any] | None) -> list[str]:
    if tokens is None:
        return ["tokens  none"]
    more = "" if tokens["tokens"] <= _TOKENS else " ..."
    return [
        f"split     {tokens['split']}, its token {tokens['first']:,}",
        f"tokens    {tokens['tokens']:,}: " + " ".join(map(repr, tokens["pieces"])) + more,
    ]
