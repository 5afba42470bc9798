"""From a plan to opened data: measure, make the tokenizer, tokenize, or take all of it from the cache."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.data import DataInfo, SplitInfo
from nlpkernel_text.cache import Cache, Entry, content_key, stamp
from nlpkernel_text.codec import TextCodec
from nlpkernel_text.corpus import Corpus, changed, found
from nlpkernel_text.data import OWNER, TextData
from nlpkernel_text.faults import Faults
from nlpkernel_text.packing import Packer, RowPacker
from nlpkernel_text.streams import open_stream, write_streams

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.component import Text

_TOKENIZER = "tokenizer"
#: Settings that decide which tokens a row holds, beside those of the cache.
_ROWS = ("window", "pack", "long", "sampling")


def open_text(text: Text, run: Run) -> TextData:
    """Open the data of a plan. Raises DataError for all that is wrong with it."""
    corpus = Corpus(text)
    stamps = [stamp(file.path) for file in corpus.files]
    with run.working("reading", sum(size for size, _ in stamps), "bytes") as work:
        key = content_key(corpus, stamps, work)

    def build(folder: Path) -> dict[str, Any]:
        facts = _build(corpus, run, folder)
        for file, before in zip(corpus.files, stamps, strict=True):
            if stamp(file.path) != before:
                raise changed(file)
        return facts

    entry = Cache(run).get(key, build)
    _account(run, entry.facts)
    tokenizer = run.ask(
        text.tokenizer, "load_tokenizer", run=run, saved=(entry.folder / _TOKENIZER).read_bytes()
    )
    task = run.ask(text.task, "create_task", run=run, vocabulary=tokenizer.vocabulary, labels=())
    packers = _packers(text, run, corpus, entry, tokenizer)
    rows = {name: getattr(text, name) for name in _ROWS}
    fingerprint = hashlib.sha256(json.dumps([key, rows], sort_keys=True).encode()).hexdigest()
    info = DataInfo(
        task=task.name,
        vocabulary=tokenizer.vocabulary,
        window=text.window,
        fingerprint=fingerprint,
        splits={
            name: SplitInfo(
                samples=packer.samples, documents=len(packer.stream.starts), tokens=len(packer.stream.tokens)
            )
            for name, packer in packers.items()
        },
    )
    return TextData(
        codec=TextCodec(info, task, tokenizer),
        packers=packers,
        run=run,
        sampling=text.sampling,
        files=corpus.files,
    )


def _build(corpus: Corpus, run: Run, folder: Path) -> dict[str, Any]:
    """Fill a folder of the cache."""
    faults = Faults(corpus.text.on_error == "skip")
    with run.working("checking", sum(file.path.stat().st_size for file in corpus.files), "bytes") as work:
        corpus.measure(faults, work)
    maker = corpus.text.tokenizer
    tokenizer: Tokenizer = run.ask(maker, "create_tokenizer", run=run, texts=corpus.texts)
    (folder / _TOKENIZER).write_bytes(tokenizer.save())
    with run.working("tokenizing", corpus.size.characters, "characters") as work:
        writers = write_streams(corpus, tokenizer, folder, work)
    return {
        "type": writers["train"].type.name,
        "documents": corpus.size.documents,
        "characters": corpus.size.characters,
        "counts": dict(faults.counts),
        "first": faults.first,
        "hint": found(faults),
    }


def _account(run: Run, facts: Any) -> None:
    """Count what was left out, also where it was left out by the process that made the cache."""
    for what, number in sorted(facts["counts"].items()):
        run.count(OWNER, what, number)
    if facts["first"]:
        message = (
            f"records were left out ({facts['hint'].removeprefix('found: ')}); the first: {facts['first']}"
        )
        run.notice(OWNER, message, level="warning")


def _packers(text: Text, run: Run, corpus: Corpus, entry: Entry, tokenizer: Tokenizer) -> dict[str, Packer]:
    pad = next((each for each in (tokenizer.pad, tokenizer.end) if each is not None), 0)
    options: dict[str, Any] = {
        "isolated": text.pack == "isolated",
        "pad": pad,
        "byte_lengths": getattr(tokenizer, "byte_lengths", None),
    }
    packers: dict[str, Packer] = {}
    for name in ("train", "validation"):
        if name == "validation" and not (text.share or corpus.own):
            continue
        stream = open_stream(entry.folder, name, entry.facts["type"])
        if text.pack != "rows":
            packers[name] = Packer(stream, text.window, **options)
        else:
            fixed = run.group is not None and run.group.requires.fixed_shapes
            packers[name] = packer = RowPacker(stream, text.window, text.long, fixed=fixed, **options)
            _account_rows(run, name, packer)
        if not packers[name].samples:
            where = corpus.described() if name == "train" or text.share else f"{corpus.own} validation files"
            raise fail(
                DataError,
                "TXT002",
                f"no examples in {where}: the {name} split has {len(stream.starts)} documents, "
                f"{len(stream.tokens)} tokens and nothing to predict",
                hint=_why(packers[name], text) or entry.facts["hint"],
            )
    return packers


def _account_rows(run: Run, name: str, packer: RowPacker) -> None:
    run.count(OWNER, f"documents of one token ({name})", packer.short)
    if packer.long != "split":
        done = "truncated" if packer.long == "truncate" else "skipped"
        run.count(OWNER, f"documents longer than the window, {done} ({name})", packer.longer)


def _why(packer: Packer, text: Text) -> str | None:
    if isinstance(packer, RowPacker) and text.long == "skip" and packer.longer:
        return f'{packer.longer} are longer than window = {text.window}, and long = "skip" leaves them out'
    return None
