"""The data component `text`. Light: what does the work is imported when the data is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, extension, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Codec, Data
    from nlpkernel.hookspecs.everywhere import Facts

#: Share of the documents that is held out where the plan says nothing.
VALIDATION = 0.1


@component
class Text:
    """Text files as training data: read, tokenized once into a cache, and packed into rows of `window` tokens."""

    paths: tuple[Path, ...] = setting(
        default=(),
        help="files, folders and patterns (`corpus/*.txt`, `corpus/**/*.md`), relative to the file that writes them",
    )
    source: Literal["stdlib"] | None = setting(
        default=None,
        help="text that is on this machine already: the Python standard library's own .py files, without its tests",
    )
    format: Literal["auto", "text", "jsonl", "csv", "tsv"] = setting(
        default="auto", help="how the files are read; auto goes by the end of each name"
    )
    field: str = setting(default="text", min_length=1, help="key or column that holds the text of a record")
    documents: Literal["file", "line", "blank"] = setting(
        default="file",
        help="what a document is in plain text: a file, a line, or what stands between blank lines",
    )
    window: int = setting(default=256, ge=1, help="tokens of a row")
    pack: Literal["joined", "isolated", "rows"] = setting(
        default="joined",
        help="joined: documents one after the other, each row sees across their seams; isolated: packed the same, "
        "but no document sees another; rows: each document begins a row of its own",
    )
    long: Literal["split", "truncate", "skip"] = setting(
        default="split",
        help='what becomes of a document that is longer than a row, with pack = "rows": several rows, its first '
        "row, or nothing (counted)",
    )
    sampling: Literal["shuffle", "order", "random"] = setting(
        default="shuffle",
        help="shuffle: another order of all rows in each epoch; order: as they stand; random: rows that start "
        "anywhere in the text",
    )
    validation: float | None = setting(
        default=None,
        ge=0,
        lt=1,
        help="share of the data that is held out; left out: 0.1, or none where validation_paths are given",
    )
    validation_paths: tuple[Path, ...] = setting(default=(), help="files of a validation split of its own")
    split: Literal["document", "tail"] = setting(
        default="document",
        help="how the validation share is taken: documents drawn from all over, or the last characters",
    )
    on_error: Literal["stop", "skip"] = setting(
        default="stop", help="a record that cannot be read: an error, or left out and counted"
    )
    tokenizer: Any = extension("tokenizer", default="bytes", help="text to tokens")
    task: Any = extension("task", default="lm", help="what is learnt")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.source is None and not self.paths:
            yield "paths", "nothing says where the text comes from: give `paths`, or `source`"
        if self.source is not None and self.paths:
            yield "source", "`source` and `paths` both say where the text comes from; give one of them"
        if self.validation is not None and self.validation_paths:
            yield "validation", "`validation_paths` are the validation split, so there is no share to take"
        if self.validation_paths and self.split == "tail":
            yield "split", "`validation_paths` are the validation split, so nothing is split"
        if self.long != "split" and self.pack != "rows":
            yield "long", f'`long = "{self.long}"` has a meaning only with `pack = "rows"`'
        if self.sampling == "random" and self.pack == "rows":
            yield "sampling", 'rows that start anywhere do not go with `pack = "rows"`'
        records = self.format in ("jsonl", "csv", "tsv")
        if self.documents != "file" and (records or self.source):
            what = f"a record of {self.format}" if records else "a file of the standard library"
            yield "documents", f"{what} is a document"
        if self.field != "text" and (self.format == "text" or self.source):
            yield "field", "plain text has no fields"
        if self.source is not None and self.format not in ("auto", "text"):
            yield "format", "the standard library is plain text"

    @property
    def share(self) -> float:
        """The share of the data that is held out for validation."""
        if self.validation is None:
            return 0.0 if self.validation_paths else VALIDATION
        return self.validation

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Rows are as long as the window."""
        return attrs.evolve(facts, window=self.window)

    @hookimpl
    def open_data(self, run: Run) -> Data:
        """Read and tokenize, or take both from the cache."""
        from nlpkernel_text.opening import open_text

        return open_text(self, run)

    @hookimpl
    def open_codec(self, run: Run, artifacts: Mapping[str, bytes]) -> Codec:
        """Tokenizer and task from a version."""
        from nlpkernel_text.codec import load_codec

        return load_codec(self, run, artifacts)
