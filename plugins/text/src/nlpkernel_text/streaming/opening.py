"""From a plan to a stream of text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.data import Data, DataInfo, SplitInfo
from nlpkernel_text.accounts import OWNER
from nlpkernel_text.building import TOKENIZER, Known
from nlpkernel_text.cache import Cache, content_key, derived_key, described, owned
from nlpkernel_text.cleaning.batches import batches
from nlpkernel_text.cleaning.running import Cleaning
from nlpkernel_text.codec import TextCodec
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.packing import Packer, RowPacker
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.samplers.components import Shuffle
from nlpkernel_text.streaming.blocks import Blocks
from nlpkernel_text.streaming.data import StreamedData
from nlpkernel_text.streaming.reading import Reading
from nlpkernel_text.streams import Stream
from nlpkernel_text.unseen import stream_of

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text import settings
    from nlpkernel_text.component import Text
    from nlpkernel_text.reading.files import File


#: Bytes at the beginning of a file that its key goes by.
_HEAD = 1 << 20


def open_streamed(text: Text, stream: settings.Stream, run: Run) -> Data:
    """Open a stream: nothing is read but what a tokenizer is trained on, and the validation split. Raise DataError."""
    training = attrs.evolve(text, validation_paths=(), validation=0.0)  # type: ignore[misc]
    corpus = Corpus(training, run)
    key = derived_key(content_key(corpus, _beginning), stages=[owned(run, each) for each in text.stages])
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

    packers = {}
    if text.validation_paths:
        known = Known(tokenizer, ())
        packers["validation"] = made = make(stream_of(text, run, known, text.validation_paths)[0])
        if isinstance(made, RowPacker):
            for what, number in made.left_out().items():
                run.count(OWNER, f"{what} (validation)", number)
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
        owner=OWNER,
    )
    return StreamedData(
        blocks,
        batch,
        len(corpus.files),
        cleaning,
        ragged=text.pack == "rows",
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
            raw = batches(corpus.raw(Faults(text.on_error == "skip"), _ignore))
            stages = Cleaning(run, text.stages, [each.shown for each in corpus.files])
            left = stream.sample
            for batch in stages.clean(raw) if text.stages else raw:
                for each in batch.texts:
                    yield each[:left]
                    left -= len(each)
                    if left <= 0:
                        return

        made: Tokenizer = run.ask(text.tokenizer, "create_tokenizer", texts=texts)
        (folder / TOKENIZER).write_bytes(made.save())
        return {}

    tokenizer_key = derived_key(key, sample=stream.sample, tokenizer=owned(run, text.tokenizer))
    entry = Cache(run, text.cache.limit).get(tokenizer_key, build)
    loaded: Tokenizer = run.ask(
        text.tokenizer, "load_tokenizer", saved=(entry.folder / TOKENIZER).read_bytes()
    )
    return loaded


def _beginning(file: File) -> str:
    """What stands for the content of a file that is not read before training: its size, and what it begins with; of a
    remote one its URL and what the server says."""
    if file.remote is not None:
        return file.digest()
    with file.open_raw() as raw:
        begins = raw.read(_HEAD)
    return f"{file.size()} {hashlib.sha256(begins).hexdigest()}"


def _ignore(size: int) -> None:
    """Nobody waits for this."""
