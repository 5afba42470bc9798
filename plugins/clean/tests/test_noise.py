from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from nlpkernel.errors import DataError
from nlpkernel_clean.components.labels import LabelNoise
from nlpkernel_clean.noise import suspects

from .conftest import Make, documents, one

pytest.importorskip("sklearn")


def labelled(count: int, flipped: float, seed: int) -> tuple[list[str], list[str], set[int]]:
    """Texts of three topics whose words overlap, with some labels that are another topic's."""
    draw = random.Random(seed)
    topics = {name: [f"{name}{at}" for at in range(60)] for name in ("sport", "money", "space")}
    shared = [f"word{at}" for at in range(200)]
    texts, labels, wrong = [], [], set()
    for at in range(count):
        label = draw.choice(sorted(topics))
        texts.append(" ".join(draw.choices(topics[label], k=8) + draw.choices(shared, k=12)))
        if draw.random() < flipped:
            wrong.add(at)
            label = draw.choice(sorted(topics.keys() - {label}))
        labels.append(label)
    return texts, labels, wrong


def test_of_flipped_labels_most_are_suspects(make: Make, tmp_path: Path) -> None:
    texts, labels, wrong = labelled(900, 0.05, seed=1)
    stage = make(LabelNoise)
    for first in range(0, 900, 200):
        part = documents(texts[first : first + 200], first, {"label": labels[first : first + 200]})
        outcome = stage.apply(part)
        assert outcome.texts is None
        assert not outcome.dropped
    said = stage.finish(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "suspects.jsonl").read_text().splitlines()]
    found = {int(row["name"].rpartition(":")[2]) - 1 for row in rows}
    assert len(found & wrong) >= 0.95 * len(wrong)
    assert len(found & wrong) >= 0.7 * len(found)
    assert said[0].startswith(f"{len(rows)} of 900 labels are probably wrong (")
    at = int(rows[0]["name"].rpartition(":")[2]) - 1
    assert rows[0]["given"] == labels[at] != rows[0]["predicted"]
    assert texts[at].startswith(rows[0]["text"])
    assert rows[0]["score"] < rows[0]["score_predicted"]

    again = make(LabelNoise)
    again.apply(documents(texts, columns={"label": labels}))
    other = tmp_path / "again"
    other.mkdir()
    again.finish(other)
    assert (other / "suspects.jsonl").read_bytes() == (tmp_path / "suspects.jsonl").read_bytes()


def test_the_rule_of_confident_learning_on_an_example_by_hand() -> None:
    # Bounds are the means: 0.7 for label 0 (0.9, 0.9, 0.3), 0.6 for label 1 (0.8, 0.4).
    chances = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]])
    rows, labels = suspects(chances, np.array([0, 0, 0, 1, 1]))
    # Row 2 reaches the bound of label 1; row 4, given 1, does not reach that of label 0.
    assert rows.tolist() == [2]
    assert labels.tolist() == [1]


def test_suspects_of_an_earlier_build_can_be_dropped(make: Make, tmp_path: Path) -> None:
    report = tmp_path / "suspects.jsonl"
    report.write_text('{"name": "some/texts.jsonl:2"}\n')
    outcome = make(LabelNoise, drop=report).apply(documents(["a", "b"], columns={"label": [1, 0]}))
    assert outcome.dropped == {1: "suspect label"}


@pytest.mark.parametrize(
    ("text", "place"),
    [("{", r"suspects.jsonl cannot be read"), ('{"name": "a"}\n[]\n', r"suspects.jsonl:2:1: CLN009")],
)
def test_a_broken_report_is_named(make: Make, tmp_path: Path, text: str, place: str) -> None:
    report = tmp_path / "suspects.jsonl"
    report.write_text(text)
    with pytest.raises(DataError, match=place):
        make(LabelNoise, drop=report)


def test_documents_without_a_label_are_named(make: Make) -> None:
    with pytest.raises(DataError, match=r"CLN007 some/texts.jsonl:1: no label in column 'label'"):
        one(make(LabelNoise), "x", label=None)
    with pytest.raises(DataError, match="CLN001"):
        one(make(LabelNoise), "x")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1] * 9, "all documents have the label '1'"),
        ([1] * 9 + [2], "label '2' has fewer documents than there are folds"),
    ],
)
def test_too_few_labels_are_said(make: Make, tmp_path: Path, labels: list[int], message: str) -> None:
    stage = make(LabelNoise)
    stage.apply(documents(["text"] * len(labels), columns={"label": labels}))
    with pytest.raises(DataError, match=f"CLN008 {message}"):
        stage.finish(tmp_path)


def test_no_documents_are_nothing_to_say(make: Make, tmp_path: Path) -> None:
    assert make(LabelNoise).finish(tmp_path) == ()
