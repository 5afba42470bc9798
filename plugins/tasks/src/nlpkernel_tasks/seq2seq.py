"""The task of writing a second text to a first: translation, summaries, answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlpkernel.errors import UsageError, fail
from nlpkernel.hookspecs.task import Judged, Term
from nlpkernel.sampling import key
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.decoding import Drawing, Search, Text, draw, search
from nlpkernel_tasks.measures import Measure
from nlpkernel_tasks.rows import need_targets, targets_of, tokens_of
from nlpkernel_tasks.texts import counted, valued

if TYPE_CHECKING:
    from torch import nn

    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.task import Row

#: A label that does not count.
IGNORED = -100

#: Purpose of a key.
_DRAWN = 0x5E2


class Writing:
    """A model writes the second text, each token of which it sees those before and all of the first text for.

    A batch has "tokens", int64 [rows, width], the first text; "lengths", int64 [rows], tokens of each that are no
    padding; "target", int64 [rows, t], the start and the second text but for its last token; and "labels" of the same
    shape, the second text, -100 for padding. The model gives logits [rows, t, vocabulary], or hidden states and a head.
    """

    name = "seq2seq"
    truth = frozenset({"target"})
    main = ("loss", "min")

    def __init__(
        self,
        how: Search,
        smoothing: float,
        measures: Sequence[Measure],
        drawing: Drawing | None = None,
        seed: int = 0,
    ) -> None:
        """drawing: texts are drawn so, by keys of the seed and the first text; None: they are searched."""
        self._how, self._drawing, self._seed = how, drawing, seed
        self._smoothing = smoothing
        self._measures = tuple(measures)

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens", and "target" where it is not to be written yet."""
        tokens, lengths = tokens_of(rows)
        batch = {
            "tokens": torch.from_numpy(tokens.astype(np.int64)),
            "lengths": torch.from_numpy(np.array(lengths)),
        }
        found = targets_of(rows)
        if found is not None:
            labels = found[0].astype(np.int64)
            target = np.roll(labels, 1, axis=1)
            target[:, 0] = self._how.start
            labels[np.arange(labels.shape[1]) >= found[1][:, None]] = IGNORED
            batch["target"], batch["labels"] = torch.from_numpy(target), torch.from_numpy(labels)
        return batch

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The number of tokens of the second texts."""
        return {"loss": float(need_targets(rows)[1].sum())}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """All but the labels."""
        return {name: batch[name] for name in ("tokens", "lengths", "target")}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """The summed cross entropy in nats, in float32, of labels of which a share is spread over the vocabulary."""
        total = functional.cross_entropy(
            _logits(outputs),
            batch["labels"].flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=self._smoothing,
        )
        return (Term("loss", total),)

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Mapping[str, Tensor]:
        """Counts of one batch, float64, of each token after the right ones: "loss_sum" in nats, "tokens", "correct"."""
        each = _each(forward(**self.inputs(batch)), batch)
        return {name: value.sum() for name, value in each.items()}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Loss in nats a token, perplexity and accuracy; where texts were written, what they are like."""
        tokens = float(counts["tokens"])
        loss = float(counts["loss_sum"]) / tokens if tokens else None
        return {
            "loss": loss,
            "perplexity": None if loss is None else math.exp(loss) if loss < 700 else math.inf,
            "accuracy": float(counts["correct"]) / tokens if tokens else None,
            **valued(counts),
        }

    def write(
        self,
        model: nn.Module,
        tokens: Tensor,
        lengths: Tensor,
        *,
        beams: int | None = None,
        drawing: Mapping[str, Any] | None = None,
        keys: Sequence[int] = (),
    ) -> list[Text]:
        """The texts that the model writes to first texts [rows, width], of which `lengths` are no padding. beams: other
        than the task's. drawing: temperature, top_k and top_p; the texts are
        drawn so, each by its key, and not searched. Raise UsageError (TSK008) for
        a model that cannot write."""
        if not all(hasattr(model, name) for name in ("encode", "decode", "select")):
            raise fail(UsageError, "TSK008", f"a {type(model).__name__} does not write texts", owner=OWNER)
        how = attrs.evolve(
            self._how,
            most=min(self._how.most, int(model.context)),  # type: ignore[arg-type]
            beams=self._how.beams if beams is None else beams,
        )
        if drawing is None:
            return search(model, tokens, lengths, how)  # type: ignore[arg-type]
        return draw(model, tokens, lengths, how, Drawing(**drawing), keys)  # type: ignore[arg-type]

    def judge(self, model: nn.Module, batch: Batch, codec: Codec) -> Judged:
        """The texts that the model writes, and what each is like. Raise UsageError (TSK008) for a model that cannot
        write."""
        real = batch["lengths"] > 0
        tokens, lengths = batch["tokens"][real], batch["lengths"][real]
        keys: list[int] = []
        drawing = None if self._drawing is None else attrs.asdict(self._drawing)
        if self._drawing is not None:
            rows = zip(tokens.tolist(), lengths.tolist(), strict=True)
            keys = [key(self._seed, _DRAWN, *row[:length]) for row, length in rows]
        written = self.write(model, tokens, lengths, drawing=drawing, keys=keys)
        texts = [codec.decode(each.tokens) for each in written]
        answers: list[dict[str, Any]] = [
            {"text": text, "score": each.score, "ended": each.ended}
            for text, each in zip(texts, written, strict=True)
        ]
        if "labels" not in batch:
            return Judged({}, answers)
        references = [_text(codec, labels) for labels in batch["labels"][real].tolist()]
        for answer, reference in zip(answers, references, strict=True):
            answer["reference"] = reference
        counts = {name: value[real] for name, value in _each(model(**self.inputs(batch)), batch).items()}
        for name, like in counted(self._measures, texts, references).items():
            counts[name] = torch.from_numpy(like)
        return Judged(counts, answers)


def _each(outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
    """Counts of each row."""
    logits, labels = _logits(outputs), batch["labels"]
    losses = functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="none")
    right = logits.argmax(dim=-1) == labels.flatten()
    return {
        "loss_sum": losses.double().view(labels.shape).sum(dim=1),
        "tokens": (labels != IGNORED).double().sum(dim=1),
        "correct": right.double().view(labels.shape).sum(dim=1),
    }


def _text(codec: Codec, labels: Sequence[int]) -> str:
    ids = [each for each in labels if each != IGNORED]
    return codec.decode(ids[:-1] if ids and ids[-1] == codec.end else ids)


def _logits(outputs: Outputs) -> Tensor:
    """[rows * t, vocabulary], in float32."""
    if outputs.logits is not None:
        return outputs.logits.flatten(0, 1).float()
    if outputs.hidden is None or outputs.head is None:
        raise ValueError("a model's outputs have neither logits nor hidden states with a head")
    return functional.linear(outputs.hidden, outputs.head).flatten(0, 1).float()
