"""Trying a trained model on samples: what it says of each, and what that counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch

from nlpkernel.errors import UsageError, fail
from nlpkernel.hookspecs.task import Judged
from nlpkernel_tasks.codes import OWNER

if TYPE_CHECKING:
    from nlpkernel.engine.opened import OpenModel
    from nlpkernel.hookspecs.data import Batch, Unseen

#: Most numbers that are held of all samples' counts, 4 GB of them.
_MOST = 500_000_000


@attrs.frozen(eq=False)
class Tried:
    """metrics: of all samples. names: where each comes from. counts: of each sample, [samples, ...], float64; empty
    where a task counts nothing of single ones. answers: what the model said of each."""

    metrics: Mapping[str, float | None]
    names: list[str]
    counts: Mapping[str, Any]
    answers: list[Mapping[str, Any]]

    @property
    def confusion(self) -> Any:
        """How often each class (or tag) was said of each, [true, said]; None where the task counts no such thing."""
        if "confusion" not in self.counts:
            return None
        total = self.counts["confusion"].sum(axis=0)
        return total.reshape(round(len(total) ** 0.5), -1)

    @property
    def losses(self) -> Any:
        """The loss of each sample, of its tokens the mean, [samples]; None where the task counts no such thing."""
        if "loss_sum" not in self.counts:
            return None
        return self.counts["loss_sum"] / np.maximum(self.counts.get("tokens", 1.0), 1.0)


def judged(opened: OpenModel, samples: Unseen) -> Iterator[tuple[list[str], Judged, Batch]]:
    """Batch after batch: where its samples come from, what the model says of them, and the batch."""
    task = opened.task
    first = 0
    with torch.no_grad():
        for batch in samples.batches():
            moved = {name: tensor.to(opened.device) for name, tensor in batch.items()}
            judge = getattr(task, "judge", None)
            found = judge(opened.model, moved, opened.codec) if judge else _one_by_one(opened, moved)
            count = len(next(iter(batch.values())))
            yield list(samples.names(first, count)), found, moved
            first += count


def evaluated(opened: OpenModel, samples: Unseen) -> Tried:
    """Try it on all samples. Raise UsageError (TSK010) where more would have to be held than there is room for."""
    task = opened.task
    names: list[str] = []
    answers: list[Mapping[str, Any]] = []
    each: dict[str, list[Any]] = {}
    whole: dict[str, Any] = {}
    held = 0
    for where, found, batch in judged(opened, samples):
        names += where
        answers += found.answers
        for name, value in found.counts.items():
            each.setdefault(name, []).append(value.cpu().double().numpy())
            held += value.numel()
        if held > _MOST:
            raise fail(
                UsageError,
                "TSK010",
                f"the counts of single samples are more than {_MOST:,} numbers",
                owner=OWNER,
                hint="try the model on fewer samples: --data FILE",
            )
        if not found.counts:
            with torch.no_grad():
                counts = task.evaluate(opened.model, batch)
            for name, count in counts.items():
                added = count.cpu().double().numpy()
                whole[name] = added if name not in whole else whole[name] + added
    counts_of = {name: np.concatenate(parts) for name, parts in each.items()}
    whole |= {name: value.sum(axis=0) for name, value in counts_of.items()}
    metrics = task.value({name: value.tolist() for name, value in whole.items()})
    return Tried(metrics, names, counts_of, answers)


def _one_by_one(opened: OpenModel, batch: Batch) -> Judged:
    """What a task that says nothing of single rows counts of batches of one."""
    rows = [
        opened.task.evaluate(opened.model, {name: value[row : row + 1] for name, value in batch.items()})
        for row in range(len(next(iter(batch.values()))))
    ]
    values = [opened.task.value({name: value.tolist() for name, value in counts.items()}) for counts in rows]
    return Judged({name: torch.stack([counts[name] for counts in rows]) for name in rows[0]}, values)
