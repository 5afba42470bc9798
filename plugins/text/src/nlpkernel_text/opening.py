"""From a plan to opened data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.data import Data, DataInfo, SplitInfo
from nlpkernel.hookspecs.sampler import Group, Sampler, Samples
from nlpkernel_text.accounts import OWNER, account, account_stages
from nlpkernel_text.augmenting import Augmenting
from nlpkernel_text.building import TOKENIZER, Building
from nlpkernel_text.cache import Entry, described
from nlpkernel_text.codec import TextCodec
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.data import TextData
from nlpkernel_text.packing import Packer, RowPacker
from nlpkernel_text.streams import Stream, open_stream

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.component import Text

#: Settings that decide which tokens a row holds, beside those of the cache.
_ROWS = ("window", "pack", "long", "sampling", "augment", "temperature")


def open_text(text: Text, run: Run, building: Building | None = None) -> Data:
    """Open the data of a plan, by a `building` that is there already or a new one. Raise DataError for all that is
    wrong with it."""
    if text.stream is not None:
        from nlpkernel_text.streaming.opening import open_streamed

        return open_streamed(text, text.stream, run)
    building = building or Building(text, run)
    entry, cleaned = building.tokens()
    corpus = building.corpus
    if cleaned is not None:
        account_stages(run, cleaned.facts)
        account(run, cleaned.facts)
    if building.images is not None:
        account(run, building.images.facts)
    account(run, entry.facts)
    tokenizer = run.ask(text.tokenizer, "load_tokenizer", saved=(entry.folder / TOKENIZER).read_bytes())
    labels = tuple(entry.facts["labels"])
    packers = _packers(text, run, corpus, entry, tokenizer)
    numbers = packers["train"].labels
    task = run.ask(
        text.task,
        "create_task",
        vocabulary=tokenizer.vocabulary,
        labels=labels,
        counts=() if numbers is None else np.bincount(numbers, minlength=len(labels)).tolist(),
        tokenizer=tokenizer,
    )
    groups = _groups(text, corpus, packers["train"])
    rows = {name: described(getattr(text, name)) for name in _ROWS}
    fingerprint = hashlib.sha256(
        json.dumps([building.tokens_key, rows, groups], sort_keys=True).encode()
    ).hexdigest()
    info = DataInfo(
        task=task.name,
        vocabulary=tokenizer.vocabulary,
        window=text.window,
        fingerprint=fingerprint,
        labels=labels,
        image=None if text.images is None else text.images.size,
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
        sampler=_sampler(text, run, packers["train"], labels, groups),
        groups=groups,
        shown=[each.shown for each in corpus.files],
        augmenting=Augmenting(run, text.augment, packers["train"], tokenizer) if text.augment else None,
        kept_bytes=text.cache.batches,
    )


def _groups(text: Text, corpus: Corpus, packer: Packer) -> list[Group]:
    """The sources of a mixture, as rows. Raise DataError (TXT002) for one with a weight and no rows."""
    if not text.sources:
        return []
    found, first = [], 0
    for origin in corpus.origins:
        last = first + len(origin.files)
        starts = packer.stream.where[:, 0]
        bounds = [packer.first(int(each)) for each in starts.searchsorted([first, last])]
        found.append(Group(origin.name, bounds[0], bounds[1], origin.weight))
        first = last
    if not any(group.weight for group in found) and text.temperature == 1:
        return found
    made = []
    for group in found:
        if group.stop == group.start:
            raise fail(DataError, "TXT002", f"no examples in the source {group.name!r} of the mixture")
        weight = group.weight or float(group.stop - group.start)
        made.append(group._replace(weight=weight ** (1 / text.temperature)))
    return made


def _sampler(text: Text, run: Run, packer: Packer, labels: Sequence[str], groups: Sequence[Group]) -> Sampler:
    train = run.train
    fixed = run.group is not None and run.group.requires.fixed_shapes
    return run.ask(  # type: ignore[no-any-return]
        text.sampling,
        "create_sampler",
        samples=Samples(
            count=packer.samples,
            window=text.window,
            lengths=packer.lengths,
            # A row can begin wherever a full row fits.
            starts=0 if isinstance(packer, RowPacker) else max(1, packer.last + 1),
            labels=packer.labels,
            classes=labels,
            weights=packer.weights,
            groups=groups,
            batch=train.batch,
            micro=train.rows,
            partial=train.partial,
            seed=train.seed,
            fixed=fixed,
        ),
    )


def packer_of(text: Text, run: Run, name: str, stream: Stream, tokenizer: Tokenizer) -> Packer:
    """What cuts the stream of a split into rows, as a plan says. What it leaves out is counted."""
    pad = next((each for each in (tokenizer.pad, tokenizer.end) if each is not None), 0)
    options: dict[str, Any] = {
        "isolated": text.pack == "isolated",
        "pad": pad,
        "byte_lengths": getattr(tokenizer, "byte_lengths", None),
    }
    if text.pack != "rows":
        return Packer(stream, text.window, **options)
    fixed = run.group is not None and run.group.requires.fixed_shapes
    packer = RowPacker(stream, text.window, text.long, fixed=fixed, **options)
    for what, number in packer.left_out().items():
        run.count(OWNER, f"{what} ({name})", number)
    return packer


def _packers(text: Text, run: Run, corpus: Corpus, entry: Entry, tokenizer: Tokenizer) -> dict[str, Packer]:
    packers: dict[str, Packer] = {}
    for name in ("train", "validation"):
        if name == "validation" and not (text.share or corpus.own):
            continue
        pixels = None if corpus.images is None else corpus.images.pixels
        stream = open_stream(entry.folder, name, entry.facts["type"], pixels)
        packers[name] = packer_of(text, run, name, stream, tokenizer)
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


def _why(packer: Packer, text: Text) -> str | None:
    if isinstance(packer, RowPacker) and text.long == "skip" and packer.longer:
        return f'{packer.longer} are longer than window = {text.window}, and long = "skip" leaves them out'
    return None
