"""The task of giving each word one of several tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.task import Judged, Term
from nlpkernel_tasks.classification import weights_of
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.entities import entities, has_entities, kinds
from nlpkernel_tasks.metrics import of_confusion
from nlpkernel_tasks.rows import matrix_of, tokens_of

if TYPE_CHECKING:
    from torch import nn

    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.task import Row

#: The tag of a token that has none: padding, and all of a word but its first token.
NONE = -1


class Tagging:
    """Each word has a tag, which its first token is asked for.

    A batch has "tokens", int64 [rows, width], the whole row; "lengths", int64 [rows], tokens of each that are no
    padding; and "labels", int64 [rows, width], -1 where there is none. The model gives logits [rows, width, tags].
    """

    name = "tokens"
    truth = frozenset({"tags"})

    def __init__(
        self, labels: Sequence[str], weights: Mapping[str, float], smoothing: float, main: str
    ) -> None:
        """weights: of tags, by name. Raise DataError where the data has fewer than two tags (TSK001), or not those that
        have weights (TSK002)."""
        if len(labels) < 2:
            raise _untagged(f"the data has {len(labels)} tags")
        self._weights = np.array(weights_of(weights, labels), dtype=np.float64)
        self.main = (main, "min" if main == "loss" else "max")
        self._labels = tuple(labels)
        self._smoothing = smoothing
        self._kinds = kinds(labels) if has_entities(labels) else ()

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens", and "tags", the number of each token's tag."""
        tokens, lengths = tokens_of(rows)
        return {
            "tokens": torch.from_numpy(tokens.astype(np.int64)),
            "lengths": torch.from_numpy(np.array(lengths)),
            "labels": torch.from_numpy(_tags(rows)),
        }

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The summed weights of the tags."""
        tags = _tags(rows)
        return {"loss": float(self._weights[tags[tags != NONE]].sum())}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """Tokens and lengths."""
        return {"tokens": batch["tokens"], "lengths": batch["lengths"]}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """The summed cross entropy of the tags in nats, each with the weight of its tag, in float32."""
        logits = _logits(outputs).float().flatten(0, 1)
        weights = torch.as_tensor(self._weights, dtype=logits.dtype, device=logits.device)
        total = functional.cross_entropy(
            logits,
            batch["labels"].flatten(),
            weight=weights,
            ignore_index=NONE,
            reduction="sum",
            label_smoothing=self._smoothing,
        )
        return (Term("loss", total),)

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Mapping[str, Tensor]:
        """Counts of one batch, float64: "loss_sum" in nats; "confusion" [tags * tags], the true tag first; where tags
        are those of entities, "entities" [3 * types]: of each type those that are right, true, and said."""
        logits = _logits(forward(**self.inputs(batch)))
        return {name: value.sum(dim=0) for name, value in self._each(logits, batch["labels"]).items()}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Loss; of tags accuracy and mean F1 of all (macro); of entities precision, recall and F1 over all (as in
        CoNLL-2003) and the mean F1 of their types."""
        values = {
            name: value
            for name, value in of_confusion(counts).items()
            if name in ("loss", "accuracy", "f1_macro")
        }
        if self._kinds:
            right, true, said = np.array(counts["entities"], dtype=np.float64).reshape(3, -1)
            each = 2 * right / np.maximum(true + said, 1)
            values["entity_precision"] = float(right.sum() / max(said.sum(), 1))
            values["entity_recall"] = float(right.sum() / max(true.sum(), 1))
            values["entity_f1"] = float(2 * right.sum() / max((true + said).sum(), 1))
            values["entity_f1_macro"] = float(each.mean())
        return values

    def judge(self, model: nn.Module, batch: Batch, codec: Codec) -> Judged:
        """The tags of each row's words, and its entities, with the words as their tokens read."""
        logits = _logits(model(**self.inputs(batch)))
        labels = batch["labels"]
        real = batch["lengths"] > 0
        counts = {name: value[real] for name, value in self._each(logits, labels).items()}
        guesses = logits.argmax(dim=-1)
        answers = []
        for row in real.nonzero()[:, 0].tolist():
            at = (labels[row] != NONE).nonzero()[:, 0].tolist()
            ids = batch["tokens"][row, : int(batch["lengths"][row])].tolist()
            ends = [*at[1:], len(ids) - (ids[-1] == codec.end)]
            words = [codec.decode(ids[begin:end]).strip() for begin, end in zip(at, ends, strict=True)]
            answers.append(self._answer(words, [self._labels[each] for each in guesses[row, at].tolist()]))
        return Judged(counts, answers)

    def _answer(self, words: list[str], tags: list[str]) -> dict[str, Any]:
        answer: dict[str, Any] = {"words": words, "tags": tags}
        if self._kinds:
            answer["entities"] = [
                {"type": kind, "text": " ".join(words[begin:end]), "begin": begin, "end": end}
                for kind, begin, end in entities(tags)
            ]
        return answer

    def _each(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Counts of each row."""
        rows, size = len(labels), len(self._labels)
        real = labels != NONE
        truth, guess = labels.clamp(min=0), logits.argmax(dim=-1)
        logs = functional.log_softmax(logits.double(), dim=-1)
        losses = -(logs.gather(2, truth[:, :, None])[:, :, 0] * real)
        confusion = torch.zeros(rows, size * size, dtype=torch.float64, device=labels.device)
        confusion.scatter_add_(1, truth * size + guess, real.double())
        counts = {"loss_sum": losses.sum(dim=1), "confusion": confusion}
        if self._kinds:
            counts["entities"] = self._entities(guess, labels).to(labels.device)
        return counts

    def _entities(self, guesses: Tensor, labels: Tensor) -> Tensor:
        counts = np.zeros((len(labels), 3, len(self._kinds)))
        for row, (guess, label) in enumerate(zip(guesses.cpu().numpy(), labels.cpu().numpy(), strict=True)):
            words = label != NONE
            true, said = (
                set(entities([self._labels[each] for each in some[words].tolist()]))
                for some in (label, guess)
            )
            for place, some in enumerate((true & said, true, said)):
                for kind, _, _ in some:
                    counts[row, place, self._kinds.index(kind)] += 1
        return torch.from_numpy(counts).flatten(1)


def _tags(rows: Sequence[Row]) -> Any:
    """Raise DataError (TSK001) for rows without tags."""
    tags = matrix_of(rows, "tags", NONE)
    if tags is None:
        raise _untagged("the rows have no tags")
    return tags


def _untagged(what: str) -> DataError:
    error = fail(
        DataError,
        "TSK001",
        what,
        owner=OWNER,
        hint='write `fields = { tags = ... }` and `pack = "rows"` in [data]',
    )
    assert isinstance(error, DataError)
    return error


def _logits(outputs: Outputs) -> Tensor:
    if outputs.logits is None or outputs.logits.dim() != 3:
        raise ValueError("a model that tags gives logits [rows, width, tags]")
    return outputs.logits
