"""From a plan to a stream of text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.data import Data, DataInfo, SplitInfo
from nlpkernel_text.building import TOKENIZER, Building
from nlpkernel_text.cache import Cache, derived_key, described, owned
from nlpkernel_text.cleaning.running import Cleaning
from nlpkernel_text.codec import TextCodec
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.data import OWNER
from nlpkernel_text.packing import Packer, RowPacker
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.samplers.components import Shuffle
from nlpkernel_text.streaming.blocks import Blocks
from nlpkernel_text.streaming.data import StreamedData
from nlpkernel_text.streaming.reading import Reading
from nlpkernel_text.streams import Stream, open_stream

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text import settings
    from nlpkernel_text.component import Text


@component
class _Ready:
    """A tokenizer that is there already."""

    digest: str = setting(help="of what it saves")

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Any]) -> Tokenizer:
        """Nothing is trained."""
        return self.tokenizer  # type: ignore[attr-defined, no-any-return]


def open_streamed(text: Text, stream: settings.Stream, run: Run) -> Data:
    """Open a stream: nothing is read but what a tokenizer is trained on, and the validation split. Raise DataError."""
    training = attrs.evolve(text, validation_paths=(), validation=0.0)  # type: ignore[misc]
    corpus = Corpus(training, run)
    sizes = [(each.shown, each.file.size()) for each in corpus.files]
    described_by = [owned(run, each) for each in (text.format, text.tokenizer, *text.stages)]
    key = derived_key("stream", files=sizes, by=described_by, fields=text.fields, encoding=text.encoding)
    tokenizer = _tokenizer(text, stream, run, corpus, key)
    task = run.ask(
        text.task, "create_task", vocabulary=tokenizer.vocabulary, labels=(), counts=(), tokenizer=tokenizer
    )
    options: dict[str, Any] = {
        "isolated": text.pack == "isolated",
        "pad": next((each for each in (tokenizer.pad, tokenizer.end) if each is not None), 0),
        "byte_lengths": getattr(tokenizer, "byte_lengths", None),
    }
    fixed = run.group is not None and run.group.requires.fixed_shapes

    def make(some: Stream) -> Packer:
        if text.pack == "rows":
            return RowPacker(some, text.window, text.long, fixed=fixed, **options)
        return Packer(some, text.window, **options)

    packers = {"validation": make(_validation(text, run, tokenizer))} if text.validation_paths else {}
    cleaning = None
    if text.stages:
        cleaning = Cleaning(run, text.stages, [each.shown for each in corpus.files], text.workers)
        if cleaning.ordered:
            cleaning.close()
            raise fail(
                DataError,
                "TXT035",
                f"the stage {cleaning.ordered[0]} has to see all documents, and a stream has no end",
                hint="clean the documents first (`nlpkernel data PLAN --write FILE` of a plan without `stream`)",
            )
    batch = run.train.batch
    size = -(-stream.buffer // batch) * batch
    rows = {name: described(getattr(text, name)) for name in ("window", "pack", "long", "sampling")}
    content = [key, hashlib.sha256(tokenizer.save()).hexdigest(), rows, size]
    info = DataInfo(
        task=task.name,
        vocabulary=tokenizer.vocabulary,
        window=text.window,
        fingerprint=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        splits={
            name: SplitInfo(
                samples=packer.samples, documents=len(packer.stream.starts), tokens=len(packer.stream.tokens)
            )
            for name, packer in packers.items()
        },
    )
    blocks = Blocks(
        Reading(corpus, tokenizer, cleaning, OWNER),
        make,
        size=size,
        seed=run.seed,
        shuffle=isinstance(text.sampling, Shuffle),
        ahead=stream.ahead,
        count=run.count,
    )
    return StreamedData(
        blocks,
        batch,
        len(corpus.files),
        cleaning,
        codec=TextCodec(info, task, tokenizer),
        packers=packers,
        run=run,
        shown=[each.shown for each in corpus.files],
        kept_bytes=text.cache.batches,
    )


def _tokenizer(text: Text, stream: settings.Stream, run: Run, corpus: Corpus, key: str) -> Tokenizer:
    """Trained on the beginning of the text, if it has to be trained; from the cache where it is there."""

    def build(folder: Path) -> dict[str, Any]:
        def texts() -> Iterator[str]:
            left = stream.sample
            for _, chunk in corpus.raw(Faults(text.on_error == "skip"), _ignore):
                for each in chunk.texts:
                    yield each[:left]
                    left -= len(each)
                    if left <= 0:
                        return

        made: Tokenizer = run.ask(text.tokenizer, "create_tokenizer", texts=texts)
        (folder / TOKENIZER).write_bytes(made.save())
        return {}

    stamps = [list(each.file.stamp()) for each in corpus.files]
    entry = Cache(run, text.cache.limit).get(
        derived_key(key, stamps=stamps, sample=stream.sample, part="tokenizer"), build
    )
    loaded: Tokenizer = run.ask(
        text.tokenizer, "load_tokenizer", saved=(entry.folder / TOKENIZER).read_bytes()
    )
    return loaded


def _validation(text: Text, run: Run, tokenizer: Tokenizer) -> Stream:
    """The tokens of the validation files, by the same tokenizer."""
    ready = _Ready(digest=hashlib.sha256(tokenizer.save()).hexdigest())
    ready.tokenizer = tokenizer  # type: ignore[attr-defined]
    mine = attrs.evolve(  # type: ignore[misc]
        text,
        paths=text.validation_paths,
        urls=(),
        source=None,
        sources=[],
        temperature=1.0,
        validation_paths=(),
        validation=0.0,
        stream=None,
        tokenizer=ready,
    )
    entry, _ = Building(mine, run).tokens()
    return open_stream(entry.folder, "train", entry.facts["type"])


def _ignore(size: int) -> None:
    """Nobody waits for this."""
