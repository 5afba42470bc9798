"""The task of restoring tokens that were hidden."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlpkernel.errors import PluginError, fail
from nlpkernel.hookspecs.task import Term
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.masking import Masking
from nlpkernel_tasks.rows import documents_of, positions_of, tokens_of, values_of

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.task import Row

#: A label that does not count.
IGNORED = -100


class MaskedModelling:
    """Tokens are restored from those around them.

    A batch has "tokens", int64 [rows, width], the whole row with what stands in the place of the chosen ones;
    "lengths", int64 [rows], tokens of each that are no padding; "at", int64 [rows, asked], the positions that are
    asked for; and "labels" of the same shape, what stood there, or -100. Where documents are isolated there are
    "positions" and "documents", as for language modelling. The model gives logits [rows, asked, vocabulary] for the
    positions in "at".
    """

    name = "mlm"
    main = ("loss", "min")

    def __init__(self, masking: Masking) -> None:
        self._masking = masking

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens" and a "key", and may have "documents"."""
        tokens, lengths = tokens_of(rows)
        chosen = self._masking.apply(tokens, lengths, _keys(rows))
        labels = np.take_along_axis(tokens, chosen.at, axis=1).astype(np.int64)
        labels[~chosen.real] = IGNORED
        batch = {
            "tokens": torch.from_numpy(chosen.tokens),
            "lengths": torch.from_numpy(np.array(lengths)),
            "at": torch.from_numpy(chosen.at),
            "labels": torch.from_numpy(labels),
        }
        documents = documents_of(rows)
        if documents is not None:
            batch["positions"] = torch.from_numpy(positions_of(documents))
            batch["documents"] = torch.from_numpy(np.ascontiguousarray(documents))
        return batch

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The number of tokens that are to be restored."""
        return {"loss": float(self._masking.count(*tokens_of(rows), _keys(rows)))}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """All but the labels."""
        return {name: value for name, value in batch.items() if name != "labels"}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """The summed cross entropy of the chosen tokens, in nats, in float32."""
        logits, labels = _asked(outputs, batch)
        return (
            Term("loss", functional.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)),
        )

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Mapping[str, Tensor]:
        """Counts of one batch, float64: "loss_sum" in nats, "tokens" that were to be restored, and "correct" of
        them."""
        logits, labels = _asked(forward(**self.inputs(batch)), batch)
        losses = functional.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
        return {
            "loss_sum": losses.double().sum(),
            "tokens": (labels != IGNORED).sum().double(),
            "correct": (logits.argmax(dim=-1) == labels).sum().double(),
        }

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Loss in nats a restored token, perplexity and accuracy."""
        tokens = float(counts["tokens"])
        if not tokens:
            return {"loss": None, "perplexity": None, "accuracy": None}
        loss = float(counts["loss_sum"]) / tokens
        return {
            "loss": loss,
            "perplexity": math.exp(loss) if loss < 700 else math.inf,
            "accuracy": float(counts["correct"]) / tokens,
        }


def _keys(rows: Sequence[Row]) -> Any:
    keys = values_of(rows, "keys", "key", np.uint64)
    if keys is None:
        raise fail(PluginError, "TSK006", "the rows of the data have no key to draw from", owner=OWNER)
    return keys


def _asked(outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
    labels = batch["labels"]
    if outputs.logits is None or outputs.logits.shape[:2] != labels.shape:
        raise ValueError('a model for masked language modelling gives logits for the positions in "at"')
    return outputs.logits.reshape(-1, outputs.logits.shape[-1]).float(), labels.reshape(-1)
