"""The task of giving each row one of several classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.task import Judged, Term
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.metrics import BINS, scores
from nlpkernel_tasks.rows import tokens_of, values_of

if TYPE_CHECKING:
    from torch import nn

    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.task import Row

#: The class of padding.
NONE = -1
#: Metrics of which less is better.
_LESS = ("loss", "calibration_error")


class Classifying:
    """Each row has one class.

    A batch has "tokens", int64 [rows, width], the whole row; "lengths", int64 [rows], tokens of each that are no
    padding; and "labels", int64 [rows], -1 for a row of padding. The model gives logits [rows, classes].
    """

    name = "classification"
    truth = frozenset({"label"})

    def __init__(
        self, labels: Sequence[str], weights: Sequence[float] | None, smoothing: float, main: str
    ) -> None:
        """weights: of the classes in their order; None where they are not known, so that there is no loss."""
        self.main = (main, "min" if main in _LESS else "max")
        self._labels = tuple(labels)
        self._smoothing = smoothing
        self._weights = None if weights is None else np.array(weights, dtype=np.float64)

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens", and where it is known "label", the number of its class."""
        tokens, lengths = tokens_of(rows)
        batch = {
            "tokens": torch.from_numpy(tokens.astype(np.int64)),
            "lengths": torch.from_numpy(np.array(lengths)),
        }
        classes = values_of(rows, "classes", "label", np.int64)
        if classes is not None:
            batch["labels"] = torch.from_numpy(np.array(classes))
        return batch

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The summed weights of the rows' classes."""
        classes = _classes(rows)
        return {"loss": float(self._known()[classes[classes >= 0]].sum())}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """Tokens and lengths."""
        return {"tokens": batch["tokens"], "lengths": batch["lengths"]}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """The summed cross entropy in nats, each row with the weight of its class, in float32. Of a smoothed label,
        each class's share has that class's own weight."""
        logits = class_logits(outputs).float()
        weights = torch.as_tensor(self._known(), dtype=logits.dtype, device=logits.device)
        total = functional.cross_entropy(
            logits,
            batch["labels"],
            weight=weights,
            ignore_index=NONE,
            reduction="sum",
            label_smoothing=self._smoothing,
        )
        return (Term("loss", total),)

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Mapping[str, Tensor]:
        """Counts of one batch, float64: "loss_sum" in nats (classes count alike, and labels are not smoothed);
        "confusion" [classes * classes], the true class first; and of each bin of confidence "bin_rows", "bin_correct"
        and "bin_confidence" (summed)."""
        return self._counts(class_logits(forward(**self.inputs(batch))).double(), batch["labels"])

    def _counts(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        real = labels != NONE
        truth = labels.clamp(min=0)
        logs = functional.log_softmax(logits, dim=-1)
        confidence, guess = logs.exp().max(dim=-1)
        count = real.double()
        classes = len(self._labels)
        bins = ((confidence * BINS).ceil().long() - 1).clamp(0, BINS - 1)

        def added(where: Tensor, values: Tensor, size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.float64, device=values.device).index_add_(0, where, values)

        return {
            "loss_sum": -(logs.gather(1, truth[:, None])[:, 0] * count).sum(),
            "confusion": added(truth * classes + guess, count, classes * classes),
            "bin_rows": added(bins, count, BINS),
            "bin_correct": added(bins, count * (guess == labels), BINS),
            "bin_confidence": added(bins, count * confidence, BINS),
        }

    def judge(self, model: nn.Module, batch: Batch, codec: Codec) -> Judged:
        """The likeliest class of each row, and the probability of each class."""
        real = batch["lengths"] > 0
        kept = {name: tensor[real] for name, tensor in batch.items()}
        logits = class_logits(model(**self.inputs(kept))).double()
        answers = []
        for chances in logits.softmax(dim=-1).tolist():
            best = max(range(len(chances)), key=chances.__getitem__)
            scores = dict(zip(self._labels, chances, strict=True))
            answers.append({"label": self._labels[best], "probability": chances[best], "scores": scores})
        if "labels" not in kept:
            return Judged({}, answers)
        for answer, label in zip(answers, kept["labels"].tolist(), strict=True):
            answer["truth"] = self._labels[label]
        each = [
            self._counts(logits[row : row + 1], kept["labels"][row : row + 1]) for row in range(len(logits))
        ]
        return Judged({name: torch.stack([counts[name] for counts in each]) for name in each[0]}, answers)

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Loss, accuracy, F1 over all rows (micro) and as the mean of all classes (macro), Matthews' coefficient, and
        the expected calibration error."""
        return scores(counts)

    def _known(self) -> Any:
        if self._weights is None:
            raise fail(
                DataError,
                "TSK003",
                'the weights are "balanced", and how many samples each class has is not known here',
                owner=OWNER,
            )
        return self._weights


def class_weights(
    given: Literal["balanced"] | Mapping[str, float] | None, labels: Sequence[str], counts: Sequence[int]
) -> list[float] | None:
    """The weights of the classes in their order; None for balanced ones where the counts are not known. Raise DataError
    for data without classes (TSK001), and for weights of classes that it does not have (TSK002)."""
    if len(labels) < 2:
        what = f"only one label, {labels[0]!r}" if labels else "no labels"
        raise fail(
            DataError,
            "TSK001",
            f"the data has {what}",
            owner=OWNER,
            hint='write `fields = { label = ... }` and `pack = "rows"` in [data]',
        )
    if given == "balanced":
        if not counts:
            return None
        return [sum(counts) / (len(counts) * max(1, count)) for count in counts]
    return weights_of(given or {}, labels)


def weights_of(given: Mapping[str, float], labels: Sequence[str]) -> list[float]:
    """Weights by name in the order of the labels, 1 for those left out. Raise DataError (TSK002) for names that are no
    labels."""
    unknown = [name for name in given if name not in labels]
    if unknown:
        raise fail(
            DataError,
            "TSK002",
            f"the data has no class {', '.join(map(repr, unknown))}, which `weights` names",
            owner=OWNER,
            hint=f"the classes are: {', '.join(labels)}",
        )
    return [float(given.get(name, 1.0)) for name in labels]


def _classes(rows: Sequence[Row]) -> Any:
    """Raise DataError (TSK001) for rows without labels."""
    classes = values_of(rows, "classes", "label", np.int64)
    if classes is None:
        raise fail(
            DataError,
            "TSK001",
            "the rows have no labels",
            owner=OWNER,
            hint='write `pack = "rows"` in [data], so that a row is of one document',
        )
    return classes


def class_logits(outputs: Outputs) -> Tensor:
    """The logits of classes. Raise ValueError for a model that gives others."""
    if outputs.logits is None or outputs.logits.dim() != 2:
        raise ValueError("a model that classifies gives logits [rows, classes]")
    return outputs.logits
