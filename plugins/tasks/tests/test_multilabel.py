"""Rows with any number of labels: loss, metrics against scikit-learn, answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from torch import Tensor, nn

from nlpkernel.errors import DataError, PlanError
from nlpkernel.hookspecs.model import Outputs
from nlpkernel.plan import Plan
from nlpkernel_sdk import tiny_values
from nlpkernel_tasks.multilabel import Labelling

NAMES = ("a", "b", "c", "d")
SETS = st.lists(st.lists(st.integers(0, 3), max_size=4, unique=True), min_size=1, max_size=12)


def task_of(
    weights: Sequence[float] = (1, 1, 1, 1), smoothing: float = 0.0, main: str = "f1_micro"
) -> Labelling:
    return Labelling(NAMES, weights, smoothing, main, 0.5)


def rows_of(sets: Sequence[Sequence[int]], padding: int = 0) -> list[dict[str, Any]]:
    return [{"tokens": [1, 2], "labels": each} for each in sets] + [{"tokens": [], "labels": []}] * padding


class Fixed(nn.Module):
    """A model that gives the same logits whatever it reads."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, tokens: Tensor, lengths: Tensor) -> Outputs:
        return Outputs(logits=self.logits[: len(tokens)])


def test_a_batch_marks_the_labels_of_each_row() -> None:
    batch = task_of().batch(rows_of([[2, 0], [], [3]], padding=1))
    assert batch["labels"].tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert batch["lengths"].tolist() == [2, 2, 2, 0]


@settings(max_examples=20)
@given(SETS, st.sampled_from([0.0, 0.2]))
def test_the_loss_is_the_mean_binary_cross_entropy_over_any_micro_batches(
    sets: list[list[int]], smoothing: float
) -> None:
    weights = (1.0, 2.0, 0.5, 1.0)
    task = task_of(weights, smoothing)
    logits = torch.randn(len(sets) + 2, 4, generator=torch.manual_seed(0))
    rows = rows_of(sets, padding=2)
    marks = task.batch(rows)["labels"][: len(sets)]
    weight = torch.tensor(weights).expand(len(sets), 4)
    soft = marks * (1 - smoothing) + smoothing / 2
    total = F.binary_cross_entropy_with_logits(logits[: len(sets)], soft, weight=weight, reduction="sum")
    wanted = float(total / weight.sum())
    for cut in {len(rows), 1}:
        parts = [range(len(rows))[at : at + cut] for at in range(0, len(rows), cut)]
        divisor = sum(task.weights([rows[each] for each in part])["loss"] for part in parts)
        found = 0.0
        for part in parts:
            (term,) = task.loss(Outputs(logits=logits[list(part)]), task.batch([rows[each] for each in part]))
            found += float(term.sum)
        assert found / divisor == pytest.approx(wanted, rel=1e-5)


@settings(max_examples=30)
@given(SETS, st.integers(0, 99))
def test_metrics_are_those_of_scikit_learn_for_any_batches(sets: list[list[int]], seed: int) -> None:
    task = task_of()
    logits = torch.randn(len(sets), 4, generator=torch.manual_seed(seed))
    rows = rows_of(sets)
    counts: dict[str, Any] = {}
    for at in range(0, len(rows), 5):
        part = task.batch(rows_of(sets[at : at + 5], padding=1))
        padded = torch.cat([logits[at : at + 5], torch.full((1, 4), 9.0)])
        for name, value in task.evaluate(Fixed(padded), part).items():
            counts[name] = counts.get(name, 0) + value
    found = task.value({name: value.tolist() for name, value in counts.items()})
    true = task.batch(rows)["labels"].numpy()
    said = (logits.sigmoid() > 0.5).numpy().astype(int)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(true, said))
    for kind in ("micro", "macro"):
        wanted = metrics.f1_score(true, said, average=kind, zero_division=0)
        assert found[f"f1_{kind}"] == pytest.approx(wanted)
    each = F.binary_cross_entropy_with_logits(logits.double(), torch.from_numpy(true).double())
    assert found["loss"] == pytest.approx(float(each))


def test_the_answer_names_the_labels_above_the_threshold() -> None:
    logits = torch.tensor([[3.0, -3.0, 3.0, -3.0], [-1.0, -1.0, -1.0, -1.0]])
    task = task_of()
    judged = task.judge(Fixed(logits), task.batch(rows_of([[0, 1], []], padding=1)), None)  # type: ignore[arg-type]
    assert [answer["labels"] for answer in judged.answers] == [["a", "c"], []]
    assert [answer["truth"] for answer in judged.answers] == [["a", "b"], []]
    assert judged.counts["set_right"].tolist() == [0.0, 1.0]
    unknown = task.batch([{"tokens": [1]}])
    assert "truth" not in task.judge(Fixed(logits), unknown, None).answers[0]  # type: ignore[arg-type]


def test_nothing_to_count_has_no_metrics() -> None:
    assert set(
        task_of().value({"set_rows": 0, "set_right": 0, "sets": [0] * 12, "loss_sum": 0}).values()
    ) == {None}


def test_rows_without_labels_cannot_be_learnt() -> None:
    with pytest.raises(DataError, match="the rows have no labels"):
        task_of().weights([{"tokens": np.array([1])}])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"several": True, "weights": "balanced"}, "weights are given by name"),
        ({"several": True, "main": "matthews"}, "one label each"),
        ({"threshold": 0.4}, "`threshold` is for `several`"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, Any], said: str) -> None:
    values = tiny_values(
        data={"use": "tiny-text", "task": {"use": "classification", **given}}, model={"use": "tiny-text"}
    )
    with pytest.raises(PlanError, match=said):
        Plan.of(values)
