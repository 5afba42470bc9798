"""Tags of words: which entities they mean, and what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_tasks.entities import entities, has_entities, kinds
from nlpkernel_tasks.tagging import NONE, Tagging

LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        # IOB1: a stretch begins with I, and B only parts two of one type.
        ("I-PER I-PER B-PER I-LOC", [("PER", 0, 2), ("PER", 2, 3), ("LOC", 3, 4)]),
        ("S-PER B-LOC I-LOC E-LOC O", [("PER", 0, 1), ("LOC", 1, 4)]),
        ("U-PER B-LOC L-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3), ("LOC", 3, 4)]),
        ("O O", []),
        ("O I-LOC", [("LOC", 1, 2)]),
    ],
)
def test_entities_of_every_scheme(tags: str, found: list[Any]) -> None:
    assert entities(tags.split()) == found


@given(st.lists(st.sampled_from(["PER", "LOC", ""]), max_size=12))
def test_entities_come_back_from_their_tags(stretches: list[str]) -> None:
    tags, wanted = [], []
    for kind in stretches:
        if kind:
            wanted.append((kind, len(tags), len(tags) + 2))
            tags += [f"B-{kind}", f"I-{kind}"]
        else:
            tags.append("O")
    assert entities(tags) == wanted


def test_tags_that_are_no_entities_are_told_apart() -> None:
    assert has_entities(LABELS)
    assert kinds(LABELS) == ("LOC", "PER")
    assert not has_entities(("NOUN", "VERB"))
    assert not has_entities(("O",))


def logits_of(guesses: list[list[int]]) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(guesses), len(LABELS)).float() * 5


def test_entities_are_counted_as_the_definition_says_in_any_batches() -> None:
    task = Tagging(LABELS, {}, 0.0, "entity_f1")
    rows = [
        {"tokens": [9, 9, 9, 9], "tags": [1, 3, NONE, 0]},
        {"tokens": [9, 9], "tags": [0, 4]},
    ]
    guesses = [[1, 3, 0, 4], [0, 1, 0, 0]]

    def counts(some: list[int]) -> Any:
        batch = task.batch([rows[each] for each in some])
        width = batch["tokens"].shape[1]
        logits = logits_of([guesses[each] for each in some])[:, :width]
        return task.evaluate(lambda **_: Outputs(logits=logits), batch)

    whole = counts([0, 1])
    parts = [counts([0]), counts([1])]
    for name, value in whole.items():
        assert torch.equal(value, parts[0][name] + parts[1][name])
    values = task.value({name: value.tolist() for name, value in whole.items()})
    # True: PER 0-2, LOC 3, LOC 0; said: PER 0-2, LOC 0 and PER 1 of the second row.
    assert values["entity_precision"] == pytest.approx(2 / 3)
    assert values["entity_recall"] == pytest.approx(2 / 3)
    assert values["entity_f1"] == pytest.approx(2 / 3)
    assert values["accuracy"] == pytest.approx(3 / 5)
    assert task.weights(rows) == {"loss": 5.0}


def test_the_loss_is_of_the_tags_and_of_nothing_else() -> None:
    task = Tagging(LABELS, {}, 0.0, "accuracy")
    batch = task.batch([{"tokens": [9, 9, 9], "tags": [1, NONE, 2]}, {"tokens": [9], "tags": [4]}])
    assert batch["lengths"].tolist() == [3, 1]
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    (term,) = task.loss(Outputs(logits=logits), batch)
    logs = logits.log_softmax(dim=-1)
    assert float(term.sum) == pytest.approx(float(-(logs[0, 0, 1] + logs[0, 2, 2] + logs[1, 0, 4])), rel=1e-6)


def test_data_without_tags_is_refused() -> None:
    with pytest.raises(DataError, match="TSK001 the data has 0 tags"):
        Tagging((), {}, 0.0, "accuracy")
    with pytest.raises(DataError, match="TSK001 the rows have no tags"):
        Tagging(LABELS, {}, 0.0, "accuracy").batch([{"tokens": np.array([1])}])


def test_a_tag_weighs_what_the_plan_says() -> None:
    weights = {LABELS[1]: 3.0}
    task = Tagging(LABELS, weights, 0.0, "accuracy")
    rows = [{"tokens": np.array([5, 6, 7]), "tags": np.array([0, 1, -1])}]
    logits = torch.randn(1, 3, len(LABELS), generator=torch.manual_seed(0))
    (term,) = task.loss(Outputs(logits=logits), task.batch(rows))
    logs = logits.log_softmax(dim=-1)[0]
    assert task.weights(rows) == {"loss": 4.0}
    assert float(term.sum) == pytest.approx(-float(logs[0, 0] + 3 * logs[1, 1]), rel=1e-6)
    with pytest.raises(DataError, match="no class 'nobody'"):
        Tagging(LABELS, {"nobody": 2.0}, 0.0, "accuracy")
