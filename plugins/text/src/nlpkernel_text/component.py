"""The data component `text`. Light: what does the work is imported when the data is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel_text.reading.components import Plain
from nlpkernel_text.samplers.components import Order, Shuffle
from nlpkernel_text.settings import Caching, Images, Source, Stream

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Codec, Data, Unseen
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel_text.codec import TextCodec

#: Share of the documents that is held out where the plan says nothing.
VALIDATION = 0.1


@component
class Text:
    """Text files as training data: read, cleaned, tokenized once into a cache, and packed into rows of `window`
    tokens."""

    paths: tuple[Path, ...] = setting(
        default=(),
        help="files, folders and patterns (`corpus/*.txt`, `corpus/**/*.md`), relative to the file that writes them; "
        "also packed ones (.gz, .bz2, .xz, .zst)",
    )
    urls: tuple[str, ...] = setting(
        default=(), help="files elsewhere, read through fsspec (`s3://bucket/folder/*.jsonl.gz`)"
    )
    storage: dict[str, str] = setting(
        factory=dict,
        help="options of the driver for `urls`, such as endpoint_url; credentials: from its environment",
    )
    source: Literal["stdlib"] | None = setting(
        default=None,
        help="text that is on this machine already: the Python standard library's own .py files, without its tests",
    )
    sources: list[Source] = setting(
        factory=list, help="a mixture: a table for each source, instead of `paths` and `urls`"
    )
    temperature: float = setting(
        default=1.0,
        gt=0,
        help="above 1, small sources of a mixture come more often: shares are weights to the power 1 / temperature",
    )
    format: Any = extension("reader", default="auto", help="how the files are read")
    fields: dict[str, str] = setting(
        factory=dict,
        help='which columns are what: { text = "body", label = "stars" }, or text = "{title}. {body}"; also weight, '
        "labels (any number), prompt (before the text, not learnt by lm), target (a second text), tags (one for each "
        "word), and image (a path, or the bytes of an image's file)",
    )
    images: Images | None = setting(
        default=None, help="how images are brought to one size, where `fields` names an image: { size = 32 }"
    )
    encoding: str = setting(
        default="utf-8", help='what text is in: a codec of Python\'s, or "auto" to find it out for each file'
    )
    on_error: Literal["stop", "skip"] = setting(
        default="stop", help="a record that cannot be read: an error, or left out and counted"
    )
    stages: list[Any] = extension("stage", many=True, help="what is done to documents, one after the other")
    workers: int = setting(
        default=0, ge=0, help="processes that share the work of the stages; 0: this one does all of it"
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
    sampling: Any = extension("sampler", default="shuffle", help="which rows each step sees")
    augment: list[Any] = extension(
        "augmentation", many=True, help='another wording of a document each time, with pack = "rows"'
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
    stream: Stream | None = setting(
        default=None, help="read as training goes on, for sets that are too large to tokenize first"
    )
    cache: Caching = setting(factory=Caching, help="what is kept, and how much of it")
    tokenizer: Any = extension("tokenizer", default="bytes", help="text to tokens")
    task: Any = extension("task", default="lm", help="what is learnt")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        yield from self._sources()
        if self.validation is not None and self.validation_paths:
            yield "validation", "`validation_paths` are the validation split, so there is no share to take"
        if self.validation_paths and self.split == "tail":
            yield "split", "`validation_paths` are the validation split, so nothing is split"
        if self.sources and self.split == "tail" and self.share:
            yield "split", "the last characters of a mixture are those of its last source alone"
        if self.long != "split" and self.pack != "rows":
            yield "long", f'`long = "{self.long}"` has a meaning only with `pack = "rows"`'
        if self.augment and (self.pack != "rows" or self.long == "split"):
            tip = 'write pack = "rows" and long = "truncate"'
            yield "augment", f"a text can have another wording where it is one row: {tip}"
        yield from self._belonging()
        if self.stream is not None:
            yield from self._stream()

    def _sources(self) -> Iterable[tuple[str, str]]:
        given = [name for name in ("paths", "urls", "source", "sources") if getattr(self, name)]
        if not given:
            yield (
                "paths",
                "nothing says where the text comes from: give `paths`, `urls`, `source` or `sources`",
            )
        for name in given[1:]:
            if {given[0], name} != {"paths", "urls"}:
                yield name, f"`{given[0]}` and `{name}` both say where the text comes from; give one of them"
        if self.fields and (self.source or isinstance(self.format, Plain)):
            yield "fields", "plain text has no fields"
        weights = [source.weight for source in self.sources if source.weight is not None]
        if weights and len(weights) < len(self.sources):
            yield "sources", "some sources have a weight and some have none; give it to all, or to none"
        names = [source.name for source in self.sources if source.name]
        for name in dict.fromkeys(each for each in names if names.count(each) > 1):
            yield "sources", f"two sources are called {name!r}"
        if any(not source.paths and not source.urls for source in self.sources):
            yield "sources", "a source has neither `paths` nor `urls`"
        if self.temperature != 1 and not self.sources:
            yield "temperature", "it weighs the sources of a mixture, and there are no `sources`"

    def _belonging(self) -> Iterable[tuple[str, str]]:
        """What goes with a text as a whole: a second text, tags, and an image."""
        names = {*self.fields, *(name for source in self.sources for name in source.fields or ())}
        if "image" in names and self.images is None:
            yield "images", "`fields` names an image, and nothing its size: write images = { size = 32 }"
        if "image" not in names and self.images is not None:
            yield "images", "`fields` names no image: write fields = { image = ... }, or leave `images` out"
        if "prompt" in names and self.augment:
            yield "augment", "another wording of a text would move the end of its `prompt`"
        if "prompt" in names and self.split == "tail":
            yield "split", "a text that has `prompt` cannot be cut in two"
        for name in sorted(names & {"target", "tags", "image"}):
            if self.pack != "rows" or (name != "tags" and self.long == "split"):
                yield (
                    "fields",
                    f"`{name}` belongs to a text that is one row: "
                    'write pack = "rows" and long = "truncate" (or "skip")',
                )
            if self.split == "tail":
                yield "split", f"a text that has `{name}` cannot be cut in two"
        if "labels" in names and self.pack != "rows":
            yield "fields", '`labels` belong to a row of one text: write pack = "rows"'
        if {"label", "labels"} <= names:
            yield "fields", "a text has one `label`, or any number of `labels`, not both"
        if "tags" in names:
            for other in sorted(names & {"target", "label", "labels", "prompt"}):
                yield "fields", f"a text has `tags` or `{other}`, not both"
            for name in ("stages", "augment"):
                if getattr(self, name):
                    yield name, "tags belong to the words as they are read, which are not changed"

    def _stream(self) -> Iterable[tuple[str, str]]:
        if self.validation:
            yield "validation", "a stream has no end to take a share of: name `validation_paths`, or write 0"
        if not isinstance(self.sampling, (Shuffle, Order)):
            yield (
                "sampling",
                'a stream is read in order: write "shuffle" (drawn from `buffer` rows) or "order"',
            )
        for name in ("label", "labels", "weight", "target", "tags", "prompt", "image"):
            if name in self.fields or any(name in (source.fields or ()) for source in self.sources):
                yield "fields", f"the rows of a stream have no {name}"
        if any(source.weight for source in self.sources) or self.temperature != 1:
            yield (
                "sources",
                "the sources of a stream are read one after the other; weights have no meaning there",
            )
        if self.augment:
            yield "augment", "documents of a stream are seen once, and are not augmented"

    @property
    def share(self) -> float:
        """The share of the data that is held out for validation."""
        if self.validation is None:
            return 0.0 if self.validation_paths or self.stream is not None else VALIDATION
        return self.validation

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Rows are as long as the window, and images as large as all."""
        return attrs.evolve(
            facts, window=self.window, image=None if self.images is None else self.images.size
        )

    @hookimpl
    def open_data(self, run: Run) -> Data:
        """Read and tokenize, or take both from the cache."""
        from nlpkernel_text.opening import open_text

        return open_text(self, run)

    @hookimpl
    def open_unseen(self, run: Run, codec: TextCodec, paths: Sequence[str], truth: bool) -> Unseen:
        """Read and tokenize files by what a model knows, or take the validation split."""
        from nlpkernel_text.unseen import open_unseen

        return open_unseen(self, run, codec, paths, truth)

    @hookimpl
    def open_codec(self, run: Run, artifacts: Mapping[str, bytes]) -> Codec:
        """Tokenizer and task from a version."""
        from nlpkernel_text.codec import load_codec

        return load_codec(self, run, artifacts)
