"""The task of giving each row any number of several labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.task import Judged, Term
from nlpkernel_tasks.classification import class_logits
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.metrics import of_sets
from nlpkernel_tasks.rows import sets_of, tokens_of

if TYPE_CHECKING:
    from torch import nn

    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.task import Row


class Labelling:
    """Each row has none, one or several of the labels, each by itself.

    A batch has "tokens", int64 [rows, width], the whole row; "lengths", int64 [rows], tokens of each that are no
    padding; and "labels", float32 [rows, labels], 1 for those that a row has. The model gives logits [rows, labels]; a
    label whose probability is above `threshold` is said.
    """

    name = "classification"
    truth = frozenset({"labels"})

    def __init__(
        self, labels: Sequence[str], weights: Sequence[float], smoothing: float, main: str, threshold: float
    ) -> None:
        """weights: of the labels in their order."""
        self.main = (main, "min" if main == "loss" else "max")
        self._labels = tuple(labels)
        self._smoothing, self._threshold = smoothing, threshold
        self._weights = np.array(weights, dtype=np.float64)

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens", and where they are known "labels", the numbers of its labels."""
        tokens, lengths = tokens_of(rows)
        batch = {
            "tokens": torch.from_numpy(tokens.astype(np.int64)),
            "lengths": torch.from_numpy(np.array(lengths)),
        }
        sets = sets_of(rows)
        if sets is not None:
            flat, counts = sets
            marked = np.zeros((len(lengths), len(self._labels)), dtype=np.float32)
            marked[np.repeat(np.arange(len(counts)), counts), flat] = 1
            batch["labels"] = torch.from_numpy(marked)
        return batch

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The summed weights of all labels, for each row. Raise DataError (TSK001) for rows without labels."""
        if sets_of(rows) is None:
            raise fail(
                DataError,
                "TSK001",
                "the rows have no labels",
                owner=OWNER,
                hint='write `fields = { labels = ... }` and `pack = "rows"` in [data]',
            )
        _, lengths = tokens_of(rows)
        return {"loss": float((lengths > 0).sum() * self._weights.sum())}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """Tokens and lengths."""
        return {"tokens": batch["tokens"], "lengths": batch["lengths"]}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """The binary cross entropy in nats, summed over rows and labels, each label with its weight, in float32. A
        smoothed label has the share `smoothing` of an even chance."""
        logits = class_logits(outputs).float()
        weights = torch.as_tensor(self._weights, dtype=logits.dtype, device=logits.device)
        wanted = batch["labels"] * (1 - self._smoothing) + self._smoothing / 2
        each = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        real = (batch["lengths"] > 0)[:, None]
        return (Term("loss", (each * weights * real).sum()),)

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Mapping[str, Tensor]:
        """Counts of one batch, float64: "loss_sum" in nats (labels count alike, and are not smoothed); "sets"
        [3 * labels]: of each label the rows that have it and are said to, that have it, and that are said to;
        "set_rows", and "set_right", the rows whose labels are all right."""
        each = self._each(class_logits(forward(**self.inputs(batch))).double(), batch)
        return {name: value.sum(dim=0) for name, value in each.items()}

    def judge(self, model: nn.Module, batch: Batch, codec: Codec) -> Judged:
        """The labels of each row, and the probability of each label."""
        real = batch["lengths"] > 0
        kept = {name: tensor[real] for name, tensor in batch.items()}
        logits = class_logits(model(**self.inputs(kept))).double()
        answers: list[dict[str, Any]] = []
        for chances in logits.sigmoid().tolist():
            scores = dict(zip(self._labels, chances, strict=True))
            said = [name for name, chance in scores.items() if chance > self._threshold]
            answers.append({"labels": said, "scores": scores})
        if "labels" not in kept:
            return Judged({}, answers)
        for answer, has in zip(answers, kept["labels"].tolist(), strict=True):
            answer["truth"] = [name for name, mark in zip(self._labels, has, strict=True) if mark]
        return Judged(self._each(logits, kept), answers)

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Loss; accuracy, the share of rows whose labels are all right; F1 over all labels (micro) and as the mean of
        all (macro)."""
        return of_sets(counts)

    def _each(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Counts of each row."""
        real = (batch["lengths"] > 0).double()[:, None]
        true = batch["labels"].double() * real
        said = (logits.sigmoid() > self._threshold).double() * real
        losses = functional.binary_cross_entropy_with_logits(logits, true, reduction="none") * real
        return {
            "loss_sum": losses.sum(dim=1),
            "sets": torch.stack([true * said, true, said], dim=1).flatten(1),
            "set_rows": real[:, 0],
            "set_right": (true == said).all(dim=1).double() * real[:, 0],
        }
