"""Data that a small language model learns by heart: windows of one repeated sentence as bytes. Named in plans by its
file: `use = ".../letters.py:Letters"`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor

from nlpkernel import component, hookimpl, setting
from nlpkernel.hookspecs.data import DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel.hookspecs.model import Outputs
from nlpkernel.hookspecs.task import Term

#: What is repeated.
SENTENCE = "the cat sat on the mat. "


class LanguageModelling:
    """Each byte predicts the next."""

    name = "lm"
    main = ("loss", "min")

    def inputs(self, batch: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """The tokens."""
        return {"tokens": batch["tokens"]}

    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> Sequence[Term]:
        """The summed cross entropy, in nats."""
        logits = outputs.logits
        if logits is None:
            assert outputs.hidden is not None
            assert outputs.head is not None
            logits = F.linear(outputs.hidden, outputs.head)
        total = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        return [Term("loss", total)]

    def evaluate(self, forward: Callable[..., Outputs], batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The summed loss, and the tokens."""
        (term,) = self.loss(forward(**self.inputs(batch)), batch)
        return {"loss": term.sum, "tokens": torch.tensor(float(batch["labels"].numel()))}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """The loss of a token."""
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
        """The bytes of a text."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of bytes."""
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
        """One, whatever is asked."""
        return 1

    def epoch(self, step: int) -> float:
        """As if there were a thousand samples."""
        return step * self.rows / 1000

    def window(self, step: int) -> Sequence[Microbatch]:
        """One micro-batch."""
        number = self.rows * self.info.window
        return [Microbatch(self.rows, number, {"loss": float(number)})]

    def microbatch(self, step: int, index: int) -> Mapping[str, Tensor]:
        """Rows that begin at other places in each step."""
        return self._batch(range(step * 7, step * 7 + self.rows))

    def names(self, step: int, index: int) -> Sequence[str]:
        """Numbers of rows."""
        return [f"sentence {row}" for row in range(self.rows)]

    def evaluation(self, split: str) -> Iterator[Mapping[str, Tensor]]:
        """One batch, the same for any split."""
        yield self._batch(range(4))

    def samples(self, split: str, count: int) -> Sequence[str]:
        """The sentence."""
        return [SENTENCE] * count

    def artifacts(self) -> Mapping[str, bytes]:
        """The window."""
        return {"window": str(self.info.window).encode()}

    def state(self) -> Mapping[str, Any]:
        """Nothing: a window is a function of its step."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        """Nothing to let go of."""


@component
class Letters:
    """The component."""

    window: int = setting(default=24, ge=1, help="bytes of a row")

    @hookimpl
    def open_data(self, run: Any) -> Sentences:
        """Rows for a batch."""
        return Sentences(self.window, run.train.batch)

    @hookimpl
    def open_codec(self, artifacts: Mapping[str, bytes]) -> BytesCodec:
        """Bytes."""
        return BytesCodec(int(artifacts["window"]))

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The vocabulary and the window."""
        return attrs.evolve(facts, vocabulary=256, window=self.window)
