"""A data component for whole runs: windows of one repeated sentence as bytes. Named in plans by its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nlpkernel import component, hookimpl, setting
from nlpkernel.hookspecs.data import DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel.hookspecs.model import Outputs
from nlpkernel.hookspecs.task import Term

SENTENCE = "the cat sat on the mat. "


class LanguageModelling:
    """Each byte predicts the next."""

    name = "lm"
    main = ("loss", "min")

    def inputs(self, batch: Mapping[str, Tensor]) -> Mapping[str, Any]:
        return {"tokens": batch["tokens"]}

    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> Sequence[Term]:
        logits = outputs.logits if outputs.hidden is None else outputs.hidden @ outputs.head.t()
        return [
            Term("loss", F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum"))
        ]

    def evaluate(self, forward: Callable[..., Outputs], batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        (term,) = self.loss(forward(**self.inputs(batch)), batch)
        return {"loss": term.sum, "tokens": torch.tensor(float(batch["labels"].numel()))}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"loss": counts["loss"] / counts["tokens"]}


class BytesCodec:
    """Ids are bytes."""

    end: int | None = None

    def __init__(self, window: int) -> None:
        self.task = LanguageModelling()
        self.info = DataInfo(
            task="lm",
            vocabulary=256,
            window=window,
            fingerprint=f"letters {window}",
            splits={"train": SplitInfo(samples=1000), "validation": SplitInfo(samples=4)},
        )

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class Sentences:
    """Rows of the repeated sentence, starting anywhere in it."""

    def __init__(self, window: int, rows: int) -> None:
        self.codec = BytesCodec(window)
        self.info, self.task, self.rows = self.codec.info, self.codec.task, rows

    def _batch(self, starts: range) -> Mapping[str, Tensor]:
        ids = list((SENTENCE * (self.info.window // len(SENTENCE) + 3)).encode())
        rows = [ids[start % len(SENTENCE) :][: self.info.window + 1] for start in starts]
        tokens = torch.tensor(rows)
        return {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        return 1

    def epoch(self, step: int) -> float:
        return step * self.rows / 1000

    def window(self, step: int) -> Sequence[Microbatch]:
        number = self.rows * self.info.window
        return [Microbatch(self.rows, number, {"loss": float(number)})]

    def microbatch(self, step: int, index: int) -> Mapping[str, Tensor]:
        return self._batch(range(step * 7, step * 7 + self.rows))

    def names(self, step: int, index: int) -> Sequence[str]:
        return [f"sentence {row}" for row in range(self.rows)]

    def evaluation(self, split: str) -> Iterator[Mapping[str, Tensor]]:
        yield self._batch(range(4))

    def samples(self, split: str, count: int) -> Sequence[str]:
        return [SENTENCE] * count

    def artifacts(self) -> Mapping[str, bytes]:
        return {"window": str(self.info.window).encode()}

    def state(self) -> Mapping[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


@component
class Letters:
    """The component."""

    window: int = setting(default=24, ge=1, help="bytes of a row")

    @hookimpl
    def open_data(self, run: Any) -> Sentences:
        return Sentences(self.window, run.train.batch)

    @hookimpl
    def open_codec(self, artifacts: Mapping[str, bytes]) -> BytesCodec:
        return BytesCodec(int(artifacts["window"]))

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        import attrs

        return attrs.evolve(facts, vocabulary=256, window=self.window)
