"""Tiny data of text: documents through reader, stages, tokenizer, sampler, augmentations and task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nlpkernel.context import Run
from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.data import Batch, DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.sampler import Sampler, Samples
from nlpkernel.hookspecs.stage import Documents
from nlpkernel.hookspecs.task import Row, Task
from nlpkernel.hookspecs.tokenizer import Tokenizer
from nlpkernel.sampling import Windows, key
from nlpkernel_sdk.files import Opened, Tally

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import Codec as CodecProtocol
    from nlpkernel_sdk.words import TinyText

_WORDS = (
    "a",
    "red",
    "blue",
    "old",
    "new",
    "small",
    "cat",
    "dog",
    "bird",
    "house",
    "tree",
    "sees",
    "likes",
    "finds",
)
LABELS = ("first", "second")


class Codec:
    """Text and ids, with the task that the data was for."""

    def __init__(self, info: DataInfo, task: Task, tokenizer: Tokenizer) -> None:
        self.info, self.task, self.tokenizer = info, task, tokenizer
        self.end = tokenizer.end

    def encode(self, text: str) -> list[int]:
        """The tokenizer's."""
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The tokenizer's."""
        return self.tokenizer.decode(ids)


def load_codec(settings: TinyText, run: Run, artifacts: Mapping[str, bytes]) -> Codec:
    """The codec that a version was saved with."""
    info = json.loads(artifacts["info.json"])
    tokenizer: Tokenizer = run.ask(settings.tokenizer, "load_tokenizer", saved=artifacts["tokenizer"])
    task = _task(settings, run, tokenizer, ())
    return Codec(DataInfo(**{**info, "labels": tuple(info["labels"]), "splits": {}}), task, tokenizer)


def _task(settings: TinyText, run: Run, tokenizer: Tokenizer, counts: Sequence[int]) -> Task:
    asked = {"vocabulary": tokenizer.vocabulary, "labels": LABELS, "counts": counts, "tokenizer": tokenizer}
    task: Task = run.ask(settings.task, "create_task", **asked)
    return task


class WordData:
    """Documents in memory; each is one sample."""

    def __init__(self, settings: TinyText, run: Run) -> None:
        self._run, self._seed = run, run.seed
        texts, labels = self._staged(settings, *_texts(settings, run))
        validation = min(settings.validation, len(texts) - 1)
        self._texts, self._labels, self._train = texts, labels, len(texts) - validation
        self._width = settings.window
        self.tokenizer: Tokenizer = run.ask(
            settings.tokenizer, "create_tokenizer", texts=lambda: iter(texts[: self._train])
        )
        counts = [labels[: self._train].count(label) for label in range(len(LABELS))]
        self.task = _task(settings, run, self.tokenizer, counts)
        self._augment = [run.ask(each, "create_augmentation") for each in settings.augment]
        self._micro = run.train.rows
        self._sampler = self._sampled(settings, run)
        digest = hashlib.sha256(repr((texts, labels)).encode() + self.tokenizer.save()).hexdigest()
        splits = {"train": SplitInfo(samples=self._train)}
        if validation:
            splits["validation"] = SplitInfo(samples=validation)
        self.info = DataInfo(
            task=self.task.name,
            vocabulary=self.tokenizer.vocabulary,
            window=settings.window,
            fingerprint=digest,
            splits=splits,
            labels=LABELS,
        )
        self.codec: CodecProtocol = Codec(self.info, self.task, self.tokenizer)
        # A window is looked at several times.
        self._rows_of = lru_cache(maxsize=4)(self._rows)

    def _staged(self, settings: TinyText, texts: list[str], labels: list[int]) -> tuple[list[str], list[int]]:
        names = [f"document {at}" for at in range(len(texts))]
        for component in settings.stages:
            stage = self._run.ask(component, "create_stage")
            outcome = stage.apply(Documents(texts, {"label": [LABELS[each] for each in labels]}, names))
            new = list(texts if outcome.texts is None else outcome.texts)
            stay = [at for at in range(len(texts)) if at not in outcome.dropped and new[at]]
            self._run.count("tiny-text", "documents dropped by stages", len(texts) - len(stay))
            texts, labels = [new[at] for at in stay], [labels[at] for at in stay]
            names = [names[at] for at in stay]
        if len(texts) < 2:
            raise fail(DataError, "SDK021", f"{len(texts)} documents are left, and training needs two")
        return texts, labels

    def _sampled(self, settings: TinyText, run: Run) -> Sampler | Windows:
        train = run.train
        if settings.sampler is None:
            return Windows(self._train, train.batch, train.rows, train.partial, run.seed)
        samples = Samples(
            count=self._train,
            window=settings.window,
            lengths=np.array(
                [len(self._tokens(text)) for text in self._texts[: self._train]], dtype=np.int64
            ),
            labels=np.array(self._labels[: self._train], dtype=np.int64),
            classes=LABELS,
            weights=np.arange(1, self._train + 1, dtype=np.float64),
            batch=train.batch,
            micro=train.rows,
            partial=train.partial,
            seed=run.seed,
        )
        sampler: Sampler = run.ask(settings.sampler, "create_sampler", samples=samples)
        return sampler

    def _tokens(self, text: str) -> list[int]:
        end = [] if self.tokenizer.end is None else [self.tokenizer.end]
        return [*self.tokenizer.encode(text), *end][: self._width]

    def _row(self, text: str, label: int, drawn: int) -> Row:
        tokens = np.array(self._tokens(text), dtype=np.int64)
        return {
            "tokens": tokens,
            "label": label,
            "target": tokens[::-1].copy(),
            "tags": tokens % len(LABELS),
            "key": drawn,
        }

    def _rows(self, step: int, index: int) -> list[Row]:
        rows = [int(row) for row in self._sampler.window(step)[index].rows]
        texts: Sequence[str] = [self._texts[row] for row in rows]
        for place, augmentation in enumerate(self._augment):
            keys = np.array([key(self._seed, step, row, place) for row in rows], dtype=np.uint64)
            texts = augmentation.apply(texts, keys)
        return [
            self._row(text, self._labels[row], key(self._seed, step, row))
            for text, row in zip(texts, rows, strict=True)
        ]

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """Windows of so many epochs, or the fewest that hold so many tokens."""
        if epochs is not None:
            return self._sampler.steps(epochs)
        steps, seen = 0, 0
        while seen < (tokens or 1):
            seen += sum(part.tokens for part in self.window(steps))
            steps += 1
        return steps

    def epoch(self, step: int) -> float:
        """Passes before a window."""
        return self._sampler.epoch(step)

    def window(self, step: int) -> Sequence[Microbatch]:
        """Counts and weights of each micro-batch."""
        parts = [self._rows_of(step, index) for index in range(len(self._sampler.window(step)))]
        return [
            Microbatch(len(rows), sum(len(row["tokens"]) for row in rows), self.task.weights(rows))
            for rows in parts
        ]

    def microbatch(self, step: int, index: int) -> Batch:
        """What the task makes of its rows."""
        return self.task.batch(self._rows_of(step, index))

    def names(self, step: int, index: int) -> Sequence[str]:
        """Numbers of documents."""
        return [f"document {row}" for row in self._sampler.window(step)[index].rows]

    def evaluation(self, split: str) -> Iterator[Batch]:
        """Every document once, in order."""
        first, last = (0, self._train) if split == "train" else (self._train, len(self._texts))
        for start in range(first, last, self._micro):
            among = range(start, min(start + self._micro, last))
            yield self.task.batch(
                [
                    {**self._row(self._texts[at], self._labels[at], key(at)), "number": at - first}
                    for at in among
                ]
            )

    def samples(self, split: str, count: int) -> Sequence[str]:
        """Texts."""
        first = 0 if split == "train" else self._train
        return self._texts[first : first + count]

    def artifacts(self) -> Mapping[str, bytes]:
        """What the codec needs."""
        info = attrs.asdict(self.info, filter=lambda field, value: field.name != "splits")
        return {"tokenizer": self.tokenizer.save(), "info.json": json.dumps(info).encode()}

    def state(self) -> Mapping[str, Any]:
        """A window is a function of the step."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        """Nothing to let go of."""


def _texts(settings: TinyText, run: Run) -> tuple[list[str], list[int]]:
    """Documents and the number of the class of each."""
    if settings.format is not None:
        assert settings.path is not None, "checked with the settings"
        reader = run.ask(settings.format, "create_reader")
        texts: list[str] = []
        for records in reader.read(Opened(settings.path), list(settings.columns), Tally()):
            texts += map(str, records.columns[settings.columns[0]])
        return texts, [at % len(LABELS) for at in range(len(texts))]
    made = []
    for number in range(settings.documents + settings.validation):
        length = 2 + key(number) % 4
        made.append(" ".join(_WORDS[key(number, at) % len(_WORDS)] for at in range(length)))
    return made, [at % len(LABELS) for at in range(len(made))]
