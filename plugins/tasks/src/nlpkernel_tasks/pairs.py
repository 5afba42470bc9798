"""The task of telling which of many second texts belongs to a first one: vectors of sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlpkernel.errors import PluginError, fail
from nlpkernel.hookspecs.task import Judged, Term
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.rows import need_targets, tokens_of, values_of

if TYPE_CHECKING:
    from torch import nn

    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.task import Row

#: How many of the likeliest count, in recall.
_TOPS = (1, 5, 10)


class Pairing:
    """Each row is a pair. Of the second texts of a micro-batch a model is to tell the one that belongs to a first, and
    the other way round: the symmetric contrastive loss of Radford et al. (2021), InfoNCE of van den Oord et al. (2018).

    A batch has "tokens" and "target", int64 [rows, width], both texts; "lengths" and "target_lengths", int64 [rows],
    tokens of each that are no padding; in an evaluation "number", int64 [rows], the row's place in its split. The model
    gives vectors [rows, 2, size], of which only the direction counts, and it may have learnt a scale.
    """

    name = "pairs"
    truth: frozenset[str] = frozenset()

    def __init__(self, temperature: float, candidates: int, main: str) -> None:
        """candidates: an evaluation is among so many pairs, the first of the split."""
        self.main = (main, "min" if main == "loss" else "max")
        self._scale = 1 / temperature
        self._candidates = candidates

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens" and "target", and may have a "number"."""
        second, sizes = need_targets(rows)
        return {
            **self._first(rows),
            "target": torch.from_numpy(second.astype(np.int64)),
            "target_lengths": torch.from_numpy(np.array(sizes)),
        }

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The number of pairs."""
        return {"loss": float((tokens_of(rows)[1] > 0).sum())}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """Both texts."""
        return {name: batch[name] for name in ("tokens", "lengths", "target", "target_lengths")}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """The summed loss in nats, the mean of both directions, in float32. A second text that is the same as a row's
        own is no wrong answer."""
        vectors = _vectors(outputs).float()
        scores = vectors[:, 0] @ vectors[:, 1].T * self._scaled(outputs)
        return (Term("loss", _contrast(scores, batch["lengths"] > 0, self._same(batch))),)

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Mapping[str, Tensor]:
        """The vectors of the batch's pairs at their places, float64 [candidates * 2 * size]; which of them there are;
        and the scale, added up with the rows that it was the scale of. So batches do not matter for what comes of it.
        Raise PluginError (TSK006) for data that numbers no rows."""
        if "number" not in batch:
            raise fail(
                PluginError, "TSK006", "the rows of the data have no number to put them by", owner=OWNER
            )
        outputs = forward(**self.inputs(batch))
        vectors, number = _vectors(outputs).double(), batch["number"]
        here = (batch["lengths"] > 0) & (number >= 0) & (number < self._candidates)
        placed = torch.zeros(
            self._candidates, 2 * vectors.shape[-1], dtype=torch.float64, device=vectors.device
        )
        placed[number[here]] = vectors[here].flatten(1)
        present = torch.zeros(self._candidates, dtype=torch.float64, device=vectors.device)
        present[number[here]] = 1.0
        rows = here.double().sum()
        scale = torch.as_tensor(self._scaled(outputs), dtype=torch.float64, device=vectors.device)
        return {"vectors": placed.flatten(), "present": present, "scale_sum": scale * rows, "pairs": rows}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Of all candidates: the loss; the share of first texts whose own second text is among the 1, 5 and 10 most
        like it (recall), the mean of one over its rank (mrr), and the share of second texts whose own first text is the
        most like (recall_1_back). Of equal ones the own counts as the last."""
        present = np.array(counts["present"]) > 0
        rows = int(present.sum())
        names = ("loss", *(f"recall_{top}" for top in _TOPS), "mrr", "recall_1_back")
        if not rows:
            return dict.fromkeys(names)
        vectors = np.array(counts["vectors"]).reshape(self._candidates, 2, -1)[present]
        likeness = vectors[:, 0] @ vectors[:, 1].T
        scale = float(counts["scale_sum"]) / float(counts["pairs"])
        total = _contrast(torch.from_numpy(likeness * scale), torch.ones(rows, dtype=torch.bool), None)
        ranks, back = ((each >= np.diag(each)[:, None]).sum(axis=1) for each in (likeness, likeness.T))
        recalls = ((ranks <= top).mean() for top in _TOPS)
        values = (float(total) / rows, *recalls, (1 / ranks).mean(), (back <= 1).mean())
        return dict(zip(names, map(float, values), strict=True))

    def judge(self, model: nn.Module, batch: Batch, codec: Codec) -> Judged:
        """The likeness (cosine) of each pair. What is counted is not of single rows."""
        vectors = _vectors(model(**self.inputs(batch)))[batch["lengths"] > 0]
        return Judged({}, self._answers(vectors))

    def _first(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """The first texts, and the numbers of the rows."""
        tokens, lengths = tokens_of(rows)
        batch = {
            "tokens": torch.from_numpy(tokens.astype(np.int64)),
            "lengths": torch.from_numpy(np.array(lengths)),
        }
        numbers = values_of(rows, "numbers", "number", np.int64)
        if numbers is not None:
            batch["number"] = torch.from_numpy(numbers)
        return batch

    def _same(self, batch: Batch) -> Tensor:
        """What is no wrong answer to what, [rows, rows]."""
        return (batch["target"][:, None] == batch["target"][None]).all(dim=2)

    def _answers(self, vectors: Tensor) -> Sequence[Mapping[str, Any]]:
        return [{"likeness": each} for each in (vectors[:, 0] * vectors[:, 1]).sum(dim=-1).tolist()]

    def _scaled(self, outputs: Outputs) -> Any:
        return self._scale if outputs.head is None else outputs.head.float()


def _contrast(scores: Tensor, real: Tensor, same: Tensor | None) -> Tensor:
    """The summed loss of rows that are real, of `scores` [rows, rows]; what is the `same` does not count."""
    # Padding is nobody's answer; it has itself as its own, so that its row is not empty.
    wrong = ~real[None, :] | ~real[:, None]
    if same is not None:
        wrong = wrong | same
    own = torch.eye(len(real), dtype=torch.bool, device=scores.device)
    scores = scores.masked_fill(wrong & ~own, float("-inf"))
    losses = -(scores.log_softmax(dim=1).diagonal() + scores.log_softmax(dim=0).diagonal()) / 2
    return (losses * real).sum()


def _vectors(outputs: Outputs) -> Tensor:
    """Of length 1, [rows, 2, size]."""
    if outputs.hidden is None or outputs.hidden.dim() != 3 or outputs.hidden.shape[1] != 2:
        raise ValueError("a model of pairs gives hidden states [rows, 2, size]")
    return functional.normalize(outputs.hidden, dim=-1)
