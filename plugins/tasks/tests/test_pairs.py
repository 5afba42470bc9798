"""Pairs: the loss by contrast, and retrieval that does not depend on batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nlpkernel.errors import DataError, PluginError
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_tasks.pairs import Pairing


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"tokens": [1, 2], "target": [3 + number], "number": number} for number in range(count)]


def vectors_of(count: int) -> torch.Tensor:
    first = torch.randn(count, 6, generator=torch.Generator().manual_seed(3))
    noise = torch.randn(count, 6, generator=torch.Generator().manual_seed(4))
    return torch.stack((first, first + noise), dim=1)


def test_the_loss_is_cross_entropy_in_both_directions() -> None:
    task = Pairing(0.1, 100, "mrr")
    batch, vectors = task.batch(rows_of(5)), vectors_of(5)
    (term,) = task.loss(Outputs(hidden=vectors), batch)
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    scores = unit[:, 0] @ unit[:, 1].T / 0.1
    own = torch.arange(5)
    cross = torch.nn.functional.cross_entropy
    both = (cross(scores, own, reduction="sum") + cross(scores.T, own, reduction="sum")) / 2
    assert float(term.sum) == pytest.approx(float(both), rel=1e-5)
    (learnt,) = task.loss(Outputs(hidden=vectors, head=torch.tensor(10.0)), batch)
    assert float(learnt.sum) == pytest.approx(float(both), rel=1e-5)
    assert task.weights(rows_of(5)) == {"loss": 5.0}


def test_padding_and_the_same_text_again_are_no_wrong_answers() -> None:
    task = Pairing(0.1, 100, "mrr")
    vectors = vectors_of(4)
    rows = rows_of(3)
    (alone,) = task.loss(Outputs(hidden=vectors[:3]), task.batch(rows))
    padded = [*rows, {"tokens": [], "target": [], "number": -1}]
    (with_padding,) = task.loss(Outputs(hidden=vectors.requires_grad_()), task.batch(padded))
    assert with_padding.sum.item() == pytest.approx(float(alone.sum), rel=1e-5)
    with_padding.sum.backward()
    assert vectors.grad is not None
    assert bool(torch.isfinite(vectors.grad).all())
    assert not vectors.grad[3].any()
    twice = [rows[0], {**rows[1], "target": rows[0]["target"]}]
    (same,) = task.loss(Outputs(hidden=vectors[:2].detach()), task.batch(twice))
    assert float(same.sum) == pytest.approx(0.0, abs=1e-6)


def test_retrieval_is_the_same_for_any_batches() -> None:
    task, vectors = Pairing(0.1, 100, "mrr"), vectors_of(20)

    def values(size: int) -> Any:
        merged: dict[str, Any] = {}
        for first in range(0, 20, size):
            batch = task.batch(rows_of(20)[first : first + size])
            outputs = Outputs(hidden=vectors[first : first + size])
            for name, value in task.evaluate(lambda outputs=outputs, **_: outputs, batch).items():
                merged[name] = merged.get(name, 0) + value
        return task.value({name: value.tolist() for name, value in merged.items()})

    whole = values(20)
    for size in (1, 3, 7):
        assert values(size) == pytest.approx(whole, abs=1e-12)
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    scores = unit[:, 0] @ unit[:, 1].T
    ranks = (scores.argsort(dim=1, descending=True) == torch.arange(20)[:, None]).nonzero()[:, 1] + 1
    assert whole["recall_1"] == pytest.approx(float((ranks <= 1).double().mean()))
    assert whole["recall_5"] == pytest.approx(float((ranks <= 5).double().mean()))
    assert whole["mrr"] == pytest.approx(float((1 / ranks.double()).mean()))
    assert 0 < whole["recall_1"] < 1
    # Those beyond the candidates are not among them.
    few = Pairing(0.1, 2, "mrr")
    counts = few.evaluate(lambda **_: Outputs(hidden=vectors), few.batch(rows_of(20)))
    assert float(counts["pairs"]) == 2


def test_rows_without_a_second_text_or_a_number_are_refused() -> None:
    task = Pairing(0.1, 100, "mrr")
    with pytest.raises(DataError, match="TSK001 the rows have no second text"):
        task.batch([{"tokens": [1]}])
    batch = task.batch([{"tokens": [1], "target": [2]}])
    with pytest.raises(PluginError, match="TSK006"):
        task.evaluate(lambda **_: Outputs(hidden=vectors_of(1)), batch)
