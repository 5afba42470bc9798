"""Behaviour: the contracts of stage, augmentation, sampler, tokenizer and task, asked directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nlpkernel.hookspecs.sampler import Samples
from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel.hookspecs.task import Row
from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.running import base, run
from nlpkernel_sdk.conform.subject import Part
from nlpkernel_sdk.conform.training import context, made
from nlpkernel_sdk.worded import LABELS

_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "größer, übermütig – naïve café",
    "日本語のテキスト 走り ☂ 🙂",
    "a",
    "tabs\tand  spaces\nand lines",
)


@check("behaviour.tokenizer-ids", "a model has as many entries as the tokenizer says", points=["tokenizer"])
def _ids(part: Part) -> None:
    tokenizer = context(part).ask(made(part), "create_tokenizer", texts=lambda: iter(_TEXTS * 8))
    wrong = []
    for text in _TEXTS:
        ids = tokenizer.encode(text)
        if any(not 0 <= each < tokenizer.vocabulary for each in ids):
            wrong.append(f"{text[:20]!r} gives an id that is not below {tokenizer.vocabulary}")
        if [int(each) for each in tokenizer.encode_batch([text])[0]] != list(ids):
            wrong.append(f"encode and encode_batch give other ids for {text[:20]!r}")
        if not isinstance(tokenizer.decode(ids), str):
            wrong.append("decode gives no text")
    for name in ("end", "pad"):
        own = getattr(tokenizer, name)
        if own is not None and not 0 <= own < tokenizer.vocabulary:
            wrong.append(f"{name} is {own}, which is no id")
    refuse(wrong)


@check(
    "behaviour.tokenizer-saved",
    "a version is used with the tokenizer that it was trained with",
    points=["tokenizer"],
)
def _saved(part: Part) -> None:
    run = context(part)
    tokenizer = run.ask(made(part), "create_tokenizer", texts=lambda: iter(_TEXTS * 8))
    loaded = run.ask(made(part), "load_tokenizer", saved=tokenizer.save())
    wrong = [
        f"{text[:20]!r} gives other ids" for text in _TEXTS if loaded.encode(text) != tokenizer.encode(text)
    ]
    if loaded.vocabulary != tokenizer.vocabulary:
        wrong.append(f"it has {loaded.vocabulary} entries, and had {tokenizer.vocabulary}")
    if loaded.save() != tokenizer.save():
        wrong.append("it is saved otherwise than it was")
    refuse(wrong)


@check(
    "behaviour.stage-outcome", "documents are counted, and none is lost without a reason", points=["stage"]
)
def _outcome(part: Part) -> None:
    outcome = _staged(part, _TEXTS)
    wrong = []
    if outcome.texts is not None and len(outcome.texts) != len(_TEXTS):
        wrong.append(f"{len(_TEXTS)} documents went in, and {len(outcome.texts)} came out")
    wrong += [
        f"document {at} is dropped, and there is none" for at in outcome.dropped if not 0 <= at < len(_TEXTS)
    ]
    wrong += [
        f"document {at} is dropped without a reason" for at, reason in outcome.dropped.items() if not reason
    ]
    refuse(wrong)


@check("behaviour.stage-parallel", "what is not ordered is shared among processes", points=["stage"])
def _parallel(part: Part) -> None:
    stage = context(part).ask(made(part), "create_stage")
    if stage.ordered:
        raise NotApplicable("it sees all documents in order")
    together = _flat(_staged(part, _TEXTS), _TEXTS)
    alone = [_flat(stage.apply(_documents([text])), [text])[0] for text in reversed(_TEXTS)][::-1]
    refuse(
        f"document {at} comes out otherwise alone than among others"
        for at, (a, b) in enumerate(zip(together, alone, strict=True))
        if a != b
    )


def _staged(part: Part, texts: Sequence[str]) -> Outcome:
    outcome: Outcome = context(part).ask(made(part), "create_stage").apply(_documents(texts))
    return outcome


def _documents(texts: Sequence[str]) -> Documents:
    labels = [LABELS[at % 2] for at in range(len(texts))]
    return Documents(list(texts), {"label": labels}, [f"text {at}" for at in range(len(texts))])


def _flat(outcome: Outcome, texts: Sequence[str]) -> list[tuple[str, str | None]]:
    new = texts if outcome.texts is None else outcome.texts
    return [(text, outcome.dropped.get(at)) for at, text in enumerate(new)]


@check(
    "behaviour.augmentation-pure",
    "what becomes of a text follows from it and its key alone",
    points=["augmentation"],
)
def _pure(part: Part) -> None:
    augmentation = context(part).ask(made(part), "create_augmentation")
    texts, keys = list(_TEXTS), np.arange(1, len(_TEXTS) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    together = list(augmentation.apply(texts, keys))
    if len(together) != len(texts):
        refuse([f"{len(texts)} texts went in, and {len(together)} came out"])
    wrong = [f"text {at} becomes empty" for at, text in enumerate(together) if not text]
    alone = [augmentation.apply([texts[at]], keys[at : at + 1])[0] for at in reversed(range(len(texts)))][
        ::-1
    ]
    wrong += [
        f"text {at} becomes another one alone than among others"
        for at, (a, b) in enumerate(zip(together, alone, strict=True))
        if a != b
    ]
    refuse(wrong)


@check(
    "behaviour.sampler-windows",
    "a window is a function of (seed, step), and names samples that exist",
    points=["sampler"],
)
def _windows(part: Part) -> None:
    samples = Samples(
        count=20,
        window=8,
        lengths=np.arange(1, 21, dtype=np.int64) % 8 + 1,
        labels=np.arange(20, dtype=np.int64) % 2,
        classes=LABELS,
        weights=np.ones(20),
        starts=100,
        batch=6,
        micro=3,
        partial="step",
        seed=5,
    )
    sampler = context(part).ask(made(part), "create_sampler", samples=samples)
    forwards = [_rows(sampler, step) for step in range(8)]
    backwards = [_rows(sampler, step) for step in reversed(range(8))][::-1]
    most = samples.starts if sampler.anywhere else samples.count
    wrong = [
        f"window {at} is another one when asked again" for at in range(8) if forwards[at] != backwards[at]
    ]
    wrong += [
        f"window {at} names a sample that is not there"
        for at, parts in enumerate(forwards)
        if any(not 0 <= row < most for part in parts for row in part)
    ]
    wrong += [f"window {at} has a micro-batch of nothing" for at in range(8) if not all(forwards[at])]
    for step in range(8):
        count = sum(len(part) for parts in forwards[:step] for part in parts)
        if sampler.seen(step) != count:
            wrong.append(f"seen({step}) is {sampler.seen(step)}, and the windows before hold {count}")
            break
    if not sampler.epoch(3) > sampler.epoch(0) or sampler.steps(1.0) < 1:
        wrong.append("epochs do not grow with steps")
    refuse(wrong)


def _rows(sampler: Any, step: int) -> list[list[int]]:
    return [[int(row) for row in part.rows] for part in sampler.window(step)]


@check(
    "behaviour.task-counts", "metrics are those of the whole split, however it is divided", points=["task"]
)
def _counts(part: Part) -> None:
    def look(session: Any) -> list[str]:
        task, forward = session.work.task, session.work.model
        rows = [_row(at) for at in range(6)]
        with torch.no_grad():
            whole = task.value(_added(task, forward, [rows]))
            divided = task.value(_added(task, forward, [rows[:1], rows[1:4], rows[4:]]))
        return [
            f"{name} is {value} of all rows, and {divided.get(name)} where they are divided"
            for name, value in whole.items()
            if not _near(value, divided.get(name))
        ]

    base(part)
    refuse(run(part, part.values(), stop_at=1, look=look).seen[0])


@check(
    "behaviour.task-weights",
    "the loss is divided by the weights, so they count what it sums",
    points=["task"],
)
def _weights(part: Part) -> None:
    def look(session: Any) -> list[str]:
        task = session.work.task
        rows = [_row(at) for at in range(6)]
        whole = task.weights(rows)
        parts = [task.weights(rows[:2]), task.weights(rows[2:])]
        wrong = [
            f"the weight of {name} is {value}, and that of two parts {sum(each[name] for each in parts)}"
            for name, value in whole.items()
            if abs(value - sum(each[name] for each in parts)) > 1e-6
        ]
        batch = task.batch(rows)
        terms = task.loss(session.work.model(**task.inputs(batch)), batch)
        names = [term.name for term in terms]
        if names[:1] != ["loss"] or set(names) - whole.keys():
            wrong.append(f"the terms are {names}, and there are weights of {list(whole)}")
        return wrong

    base(part)
    refuse(run(part, part.values(), stop_at=1, look=look).seen[0])


def _row(at: int) -> Row:
    tokens = np.array([(at * 7 + place * 3) % 50 + 1 for place in range(3 + at)], dtype=np.int64)
    return {
        "tokens": tokens,
        "label": at % 2,
        "target": tokens[::-1].copy(),
        "tags": tokens % 2,
        "key": at * 12345,
        "number": at,
        "image": np.full((3, 16, 16), at * 40, dtype=np.uint8),
    }


def _added(task: Any, forward: Any, parts: Sequence[Sequence[Row]]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for rows in parts:
        for name, value in task.evaluate(forward, task.batch(rows)).items():
            counts[name] = counts[name] + value if name in counts else value
    return {name: value.tolist() for name, value in counts.items()}


def _near(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= 1e-5 * max(1.0, abs(a))
