"""Samples that a trained model is tried on: of files that it has never seen, or of the plan's validation split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel_text.accounts import account, account_stages
from nlpkernel_text.building import Building, Known
from nlpkernel_text.fields import LABEL, LABELS, TAGS, TARGET, WEIGHT
from nlpkernel_text.opening import open_text, packer_of
from nlpkernel_text.streams import Stream, open_stream

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel_text.codec import TextCodec
    from nlpkernel_text.component import Text
    from nlpkernel_text.data import PackedData
    from nlpkernel_text.packing import Packer

#: What a sample has that a model is asked for, where the task does not say it.
_TRUTH = frozenset({LABEL, LABELS, TAGS, TARGET})


class UnseenText:
    """See `nlpkernel.hookspecs.data.Unseen`."""

    def __init__(self, codec: Codec, packer: Packer, rows: int, shown: Sequence[str]) -> None:
        self.samples = packer.samples
        self._codec, self._packer, self._rows, self._shown = codec, packer, rows, shown

    def batches(self) -> Iterator[Batch]:
        """All rows in their order."""
        for first in range(0, self.samples, self._rows):
            ids = np.arange(first, min(first + self._rows, self.samples))
            rows = self._packer.rows(ids, measured=True)
            rows.numbers = ids
            yield self._codec.task.batch(rows)

    def names(self, first: int, count: int) -> Sequence[str]:
        """File and line of some rows: "held.jsonl:120"; with the tokens of their document before them, if any."""
        starts = self._packer.rows(self._ids(first, count)).starts
        found = []
        for file, line, before in map(self._packer.place, starts.tolist()):
            found.append(f"{self._shown[file]}:{line}" + (f"+{before}" if before else ""))
        return found

    def texts(self, first: int, count: int) -> Sequence[str]:
        """Some rows, decoded."""
        rows = self._packer.rows(self._ids(first, count))
        return [
            self._codec.decode([int(each) for each in row["tokens"] if each != self._codec.end])
            for row in rows
        ]

    def _ids(self, first: int, count: int) -> Any:
        return np.arange(first, min(first + count, self.samples))


def stream_of(text: Text, run: Run, known: Known, paths: Sequence[Path]) -> tuple[Stream, list[str]]:
    """The tokens of some files, read as a plan says and by what a model knows, and how messages call the files. Raise
    DataError for what is wrong."""
    building = Building(_of_files(text, paths), run, known)
    entry, cleaned = building.tokens()
    if cleaned is not None:
        account_stages(run, cleaned.facts)
        account(run, cleaned.facts)
    if building.images is not None:
        account(run, building.images.facts)
    account(run, entry.facts)
    images = building.corpus.images
    pixels = None if images is None else images.pixels
    stream = open_stream(entry.folder, "train", entry.facts["type"], pixels)
    return stream, [each.shown for each in building.corpus.files]


def open_unseen(text: Text, run: Run, codec: TextCodec, paths: Sequence[str], truth: bool) -> UnseenText:
    """Open samples. Raise DataError for anything wrong with them, and where the plan's own are not what they were."""
    if not paths:
        return _validation(text, run, codec)
    if not truth:
        asked = {WEIGHT, *getattr(codec.task, "truth", _TRUTH)}
        names = {name: value for name, value in text.fields.items() if name not in asked}
        text = attrs.evolve(text, fields=names)  # type: ignore[misc]
    known = Known(codec.tokenizer, codec.info.labels, words=codec.info.task == "tokens")
    stream, shown = stream_of(text, run, known, [Path.cwd() / path for path in paths])
    packer = packer_of(text, run, "unseen", stream, codec.tokenizer)
    return UnseenText(codec, packer, run.train.rows, shown)


def _of_files(text: Text, paths: Sequence[Path]) -> Text:
    fields, format = text.fields, text.format
    if text.sources:
        # What is read is like the first source.
        first = text.sources[0]
        fields, format = fields if first.fields is None else first.fields, first.format or format
    found: Text = attrs.evolve(  # type: ignore[misc]
        text,
        paths=tuple(paths),
        fields=fields,
        format=format,
        urls=(),
        source=None,
        sources=[],
        temperature=1.0,
        validation_paths=(),
        validation=0.0,
        split="document",
        stream=None,
        augment=[],
    )
    return found


def _validation(text: Text, run: Run, codec: TextCodec) -> UnseenText:
    data: PackedData = open_text(text, run)  # type: ignore[assignment]
    hint = "name files with --data"
    if data.info.fingerprint != codec.info.fingerprint:
        message = (
            "the data of the plan is not what the model was trained on: files or settings have changed since"
        )
        raise fail(DataError, "TXT037", message, hint=hint)
    if "validation" not in data.packers:
        raise fail(DataError, "TXT037", "the plan has no validation split", hint=hint)
    return UnseenText(codec, data.packers["validation"], run.train.rows, data.shown)
