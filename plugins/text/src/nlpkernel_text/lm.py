"""The task of predicting the next token."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlpkernel.hookspecs.task import Term
from nlpkernel_text.linear_loss import linear_cross_entropy, linear_scores
from nlpkernel_text.rows import Rows

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.task import Row

#: A label that does not count.
IGNORED = -100


class LanguageModelling:
    """Each token predicts the next one of its document, if that is not of its prompt.

    A batch has "tokens" and "labels", int64 [rows, width]; the label of a token is its next one, or -100 where that
    does not count: at the end of a document, before a token of a prompt, and in padding, which is told by length and
    never by its id.
    Where documents are isolated there are "positions", from 0 in each document, and "documents", from 0 in
    each row: a token sees those of its own document. Evaluation batches may have "bytes", int64 [rows]: bytes
    of text that the counted labels stand for.
    """

    name = "lm"
    main = ("loss", "min")

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens" (ids, the last of which is only predicted), and may have
        "documents" (of each token)."""
        packed = rows if isinstance(rows, Rows) else None
        block, padding, documents = _stacked(rows) if packed is None else _arrays(packed)
        tokens = block[:, :-1].astype(np.int64)
        labels = block[:, 1:].astype(np.int64)
        if padding is not None:
            labels[padding[:, 1:]] = IGNORED
        if packed is not None and (prompted := packed.prompted) is not None:
            labels[prompted[:, 1:]] = IGNORED
        batch = {"tokens": torch.from_numpy(tokens), "labels": torch.from_numpy(labels)}
        if documents is not None:
            labels[documents[:, 1:] != documents[:, :-1]] = IGNORED
            inside = documents[:, :-1]
            batch["positions"] = torch.from_numpy(_positions(inside))
            batch["documents"] = torch.from_numpy(np.ascontiguousarray(inside))
        measure = packed.packer.byte_lengths if packed is not None and packed.measured else None
        if measure is not None:
            sizes = measure[np.maximum(labels, 0)] * (labels >= 0)
            batch["bytes"] = torch.from_numpy(sizes.sum(axis=1))
        return batch

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The number of counted labels."""
        if isinstance(rows, Rows):
            return {"loss": float(rows.counted)}
        _, padding, documents = _stacked(rows)
        counted = ~padding[:, 1:]
        if documents is not None:
            counted &= documents[:, 1:] == documents[:, :-1]
        return {"loss": float(counted.sum())}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """Tokens, and with isolated documents their positions and documents."""
        if "documents" in batch:
            return {name: batch[name] for name in ("tokens", "positions", "documents")}
        return {"tokens": batch["tokens"]}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """The summed cross entropy of the counted labels, in nats, in float32."""
        labels = batch["labels"].reshape(-1)
        if outputs.logits is not None:
            logits = outputs.logits.reshape(-1, outputs.logits.shape[-1]).float()
            return (
                Term("loss", functional.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)),
            )
        hidden, head = _hidden(outputs)
        return (Term("loss", linear_cross_entropy(hidden, head, labels)),)

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Mapping[str, Tensor]:
        """Counts of one batch, float64: "loss_sum" in nats, "tokens", "correct", and "bytes" where they are known."""
        outputs = forward(**self.inputs(batch))
        labels = batch["labels"].reshape(-1)
        if outputs.logits is not None:
            logits = outputs.logits.reshape(-1, outputs.logits.shape[-1]).float()
            loss = (
                functional.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
                .double()
                .sum()
            )
            correct = (logits.argmax(dim=-1) == labels).sum().double()
        else:
            loss, correct = linear_scores(*_hidden(outputs), labels)
        counts = {"loss_sum": loss, "tokens": (labels != IGNORED).sum().double(), "correct": correct}
        if "bytes" in batch:
            counts["bytes"] = batch["bytes"].sum().double()
        return counts

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Loss in nats a token, perplexity, accuracy, and bits a byte where the bytes are known."""
        tokens, loss_sum = float(counts["tokens"]), float(counts["loss_sum"])
        size = float(counts.get("bytes", 0))
        loss = loss_sum / tokens if tokens else None
        values = {
            "loss": loss,
            "perplexity": None if loss is None else math.exp(loss) if loss < 700 else math.inf,
            "accuracy": float(counts["correct"]) / tokens if tokens else None,
        }
        if "bytes" in counts:
            values["bits_per_byte"] = loss_sum / math.log(2) / size if size else None
        return values


def _hidden(outputs: Outputs) -> tuple[Tensor, Tensor]:
    if outputs.hidden is None or outputs.head is None:
        raise ValueError("a model's outputs have neither logits nor hidden states with a head")
    return outputs.hidden.reshape(-1, outputs.hidden.shape[-1]), outputs.head


def _arrays(rows: Rows) -> tuple[Any, Any, Any]:
    return rows.tokens, rows.padding, rows.documents if rows.isolated else None


def _stacked(rows: Sequence[Row]) -> tuple[Any, Any, Any]:
    """Rows of different lengths as one block, where it is padding, and the documents where the rows have them."""
    lengths = np.array([len(row["tokens"]) for row in rows])
    width = max(2, int(lengths.max(initial=0)))
    padding = np.arange(width) >= lengths[:, None]
    block = np.zeros((len(rows), width), dtype=np.int64)
    documents = (
        np.full((len(rows), width), -1, dtype=np.int64) if any("documents" in row for row in rows) else None
    )
    for number, row in enumerate(rows):
        block[number, : lengths[number]] = row["tokens"]
        if documents is not None:
            documents[number, : lengths[number]] = row.get("documents", 0)
            # Padding is a document of its own.
            documents[number, lengths[number] :] = documents[number].max() + 1
    return block, padding, documents


def _positions(documents: Any) -> Any:
    """The position of each token in its document, [rows, width]."""
    at = np.arange(documents.shape[1])
    begins = np.zeros(documents.shape, dtype=np.int64)
    begins[:, 1:] = np.where(documents[:, 1:] != documents[:, :-1], at[1:], 0)
    return at - np.maximum.accumulate(begins, axis=1)
