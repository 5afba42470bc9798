"""Classification: weights of the loss, metrics from counts, labels."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.model import Outputs
from nlpkernel.plan.train import Train
from nlpkernel_tasks.classification import NONE, Classifying, class_weights
from nlpkernel_tasks.component import Classification
from nlpkernel_tasks.metrics import BINS

NAMES = ("a", "b", "c")


def rows_of(labels: Sequence[int], length: int = 3) -> list[dict[str, Any]]:
    return [{"tokens": [1] * (length if label >= 0 else 0), "label": label} for label in labels]


def task_of(
    weights: Sequence[float] = (1, 1, 1), smoothing: float = 0.0, main: str = "accuracy"
) -> Classifying:
    return Classifying(NAMES, weights, smoothing, main)


def test_a_batch_has_whole_rows_with_lengths_and_classes() -> None:
    batch = task_of().batch([{"tokens": [4, 5, 6], "label": 2}, {"tokens": [7], "label": 0}])
    assert batch["tokens"].tolist() == [[4, 5, 6], [7, 0, 0]]
    assert batch["lengths"].tolist() == [3, 1]
    assert batch["labels"].tolist() == [2, 0]
    assert {name: value.dtype for name, value in batch.items()} == dict.fromkeys(batch, torch.int64)
    assert set(task_of().inputs(batch)) == {"tokens", "lengths"}


# -- the loss


def gradient_of(task: Classifying, parts: Sequence[Sequence[int]], table: Tensor) -> tuple[float, Tensor]:
    """The loss of a step over micro-batches, divided as the engine divides, and its gradient. A row's label is its
    place in `table`, which holds its logits."""
    table = table.clone().requires_grad_()
    labels = [number % 3 for number in range(len(table))]
    total = sum(task.weights(rows_of([labels[each] for each in part]))["loss"] for part in parts)
    mean = 0.0
    for part in parts:
        batch = task.batch(rows_of([labels[each] for each in part]))
        (term,) = task.loss(Outputs(logits=table[list(part)]), batch)
        (term.sum / total).backward()
        mean += float(term.sum.detach()) / total
    assert table.grad is not None
    return mean, table.grad


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_case_l1_the_mean_is_right_over_uneven_micro_batches_and_workers(smoothing: float) -> None:
    task, table = task_of((1.0, 4.0, 0.25), smoothing), torch.randn(10, 3, generator=torch.manual_seed(0))
    loss, gradient = gradient_of(task, [range(10)], table)
    for parts in ([range(1), range(1, 10)], [range(7), range(7, 10)], [[each] for each in range(10)]):
        again, same = gradient_of(task, parts, table)
        assert again == pytest.approx(loss, abs=1e-6)
        torch.testing.assert_close(same, gradient, atol=1e-6, rtol=0)
    labels = torch.arange(10) % 3
    weight = torch.tensor([1.0, 4.0, 0.25])
    expected = F.cross_entropy(table, labels, weight=weight, label_smoothing=smoothing)
    assert loss == pytest.approx(float(expected), abs=1e-6)


def test_padding_weighs_nothing_and_changes_nothing() -> None:
    task = task_of((1.0, 4.0, 0.25), 0.1)
    logits = torch.randn(4, 3, generator=torch.manual_seed(1))
    rows, padded = rows_of([2, 1]), rows_of([2, 1, NONE, NONE])
    assert task.weights(padded) == task.weights(rows) == {"loss": 4.25}
    (term,), (same,) = (
        task.loss(Outputs(logits=logits[:2]), task.batch(rows)),
        task.loss(Outputs(logits=logits), task.batch(padded)),
    )
    assert float(term.sum) == pytest.approx(float(same.sum))
    counts = task.evaluate(lambda **_: Outputs(logits=logits), task.batch(padded))
    assert float(counts["confusion"].sum()) == float(counts["bin_rows"].sum()) == 2


def test_weights_are_given_by_name_or_follow_from_the_counts() -> None:
    assert class_weights(None, NAMES, ()) == [1, 1, 1]
    assert class_weights({"b": 2.5}, NAMES, ()) == [1, 2.5, 1]
    assert class_weights("balanced", NAMES, (10, 20, 30)) == pytest.approx([2, 1, 2 / 3])
    assert class_weights("balanced", NAMES, ()) is None
    with pytest.raises(DataError, match=r"TSK002 the data has no class 'd'.*a, b, c"):
        class_weights({"d": 1.0}, NAMES, ())


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    weights = pytest.importorskip("sklearn.utils.class_weight")
    labels = np.repeat([0, 1, 2], (5, 1, 17))
    expected = weights.compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert class_weights("balanced", NAMES, np.bincount(labels).tolist()) == pytest.approx(expected)


def test_without_its_data_a_balanced_task_evaluates_and_does_not_train() -> None:
    task = Classifying(NAMES, None, 0.0, "accuracy")
    batch = task.batch(rows_of([0, 1]))
    logits = torch.zeros(2, 3)
    assert task.value(counts_of(task, batch, logits))["loss"] == pytest.approx(np.log(3))
    with pytest.raises(DataError, match="TSK003"):
        task.loss(Outputs(logits=logits), batch)


def test_data_without_classes_is_refused(tmp_path: Any) -> None:
    run = Run(name="x", folder=tmp_path, cache=tmp_path, train=Train())
    for labels, told in (((), "no labels"), (("a",), "only one label, 'a'")):
        with pytest.raises(DataError, match=f"TSK001 the data has {told}"):
            Classification().create_task(run, labels, ())
    with pytest.raises(DataError, match="TSK001 the rows have no labels"):
        task_of().weights([{"tokens": [1, 2]}])


def test_what_is_best_goes_by_the_metric_that_is_chosen() -> None:
    assert task_of().main == ("accuracy", "max")
    assert task_of(main="loss").main == ("loss", "min")
    assert task_of(main="calibration_error").main == ("calibration_error", "min")
    assert task_of(main="f1_macro").main == ("f1_macro", "max")


# -- the metrics


def counts_of(task: Classifying, batch: Mapping[str, Tensor], logits: Tensor) -> dict[str, Any]:
    return {
        name: value.tolist()
        for name, value in task.evaluate(lambda **_: Outputs(logits=logits), batch).items()
    }


def merged(task: Classifying, labels: Any, logits: Tensor, cuts: Sequence[int]) -> dict[str, float | None]:
    """The metrics of batches that end at `cuts`, merged as workers merge."""
    total: dict[str, Any] = {}
    for first, last in zip((0, *cuts), (*cuts, len(labels)), strict=True):
        batch = task.batch(rows_of(labels[first:last].tolist()))
        for name, value in counts_of(task, batch, logits[first:last]).items():
            total[name] = np.add(value, total.get(name, 0))
    return dict(task.value(total))


def expected_calibration_error(confidence: Any, correct: Any) -> float:
    """As it is defined, bin by bin."""
    edges = np.linspace(0, 1, BINS + 1)
    error = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            error += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return error


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(), rows=st.integers(1, 40), seed=st.integers(0, 2**20), spread=st.sampled_from([0.3, 2, 6])
)
def test_case_e2_metrics_are_those_of_scikit_learn_for_any_batches_and_workers(
    data: st.DataObject, rows: int, seed: int, spread: float
) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 3, rows)
    logits = torch.from_numpy(draws.normal(0, spread, (rows, 3)))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=5)))
    task = task_of((3.0, 1.0, 0.1), 0.1)
    values = merged(task, labels, logits.float(), cuts)
    chances = torch.softmax(logits.float().double(), -1).numpy()
    guess = chances.argmax(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = {
            # Not its log_loss, which takes no chance for less than 2e-16.
            "loss": -np.log(chances[np.arange(rows), labels]).mean(),
            "accuracy": metrics.accuracy_score(labels, guess),
            "f1_micro": metrics.f1_score(labels, guess, average="micro", labels=range(3)),
            "f1_macro": metrics.f1_score(labels, guess, average="macro", labels=range(3)),
            "matthews": metrics.matthews_corrcoef(labels, guess),
            "calibration_error": expected_calibration_error(chances.max(-1), guess == labels),
        }
    assert values == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_case_e1_five_samples_are_five_on_any_number_of_workers(ranks: int) -> None:
    # One of five is right; each worker has every ranks-th of them.
    labels = torch.tensor([0, 1, 1, 1, 1])
    logits = F.one_hot(torch.zeros(5, dtype=torch.int64), 3).float()
    task = task_of()
    total: dict[str, Any] = {}
    for rank in range(ranks):
        mine = labels[rank::ranks]
        for name, value in counts_of(task, task.batch(rows_of(mine.tolist())), logits[rank::ranks]).items():
            total[name] = np.add(value, total.get(name, 0))
    assert total["confusion"].sum() == 5
    assert task.value(total)["accuracy"] == pytest.approx(0.2)


def test_where_nothing_is_counted_there_is_no_metric() -> None:
    task = task_of()
    values = task.value(counts_of(task, task.batch(rows_of([NONE])), torch.zeros(1, 3)))
    assert set(values.values()) == {None}


def test_a_model_that_gives_something_else_is_told_what_is_wanted() -> None:
    task: Any = task_of()
    answer: Callable[..., Outputs] = lambda **_: Outputs(logits=torch.zeros(2, 3, 3))  # noqa: E731
    with pytest.raises(ValueError, match=r"\[rows, classes\]"):
        task.evaluate(answer, task.batch(rows_of([0, 1])))
