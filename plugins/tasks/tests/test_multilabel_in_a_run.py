"""Texts with any number of labels, from files to metrics and answers, by plan and command line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.errors import PlanError
from nlpkernel.plan import Plan
from nlpkernel.plan.writer import write_toml

WORDS = {"sea": ["wave", "ship", "fish"], "sky": ["cloud", "wind", "bird"], "land": ["tree", "road", "hill"]}


def records(count: int, seed: int, written: Any) -> str:
    draws = random.Random(seed)
    lines = []
    for _ in range(count):
        topics = [topic for topic in WORDS if draws.random() < 0.4]
        words = [draws.choice(WORDS[topic]) for topic in topics for _ in range(2)] + ["the", "of"]
        draws.shuffle(words)
        lines.append(json.dumps({"text": " ".join(words), "topics": written(topics)}) + "\n")
    return "".join(lines)


def plan(folder: Path, written: Any = list, **data: Any) -> dict[str, Any]:
    (folder / "train.jsonl").write_text(records(240, 1, written), encoding="utf-8")
    (folder / "held.jsonl").write_text(records(60, 2, written), encoding="utf-8")
    return {
        "name": "topics",
        "train": {"steps": 90, "batch": 16, "threads": 1, "evaluate": {"every": 90}},
        "data": {
            "use": "text",
            "paths": ["train.jsonl"],
            "validation_paths": ["held.jsonl"],
            "fields": {"labels": "topics"},
            "pack": "rows",
            "long": "truncate",
            "window": 16,
            "tokenizer": {"use": "wordpiece", "vocabulary": 120},
            "task": {"use": "classification", "several": True, "main": "f1_micro"},
            **data,
        },
        "model": {"use": "encoder", "preset": "nano", "layers": 1, "width": 32, "heads": 2, "dropout": 0.0},
        "optimizer": {"use": "adamw", "lr": 5e-3},
        "checkpoint": {"use": "store"},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("topics")
    report = nlpkernel.run(Plan.of(plan(folder), base=folder), runs_folder=folder / "runs")
    return folder, report


def test_texts_with_several_labels_are_learnt(trained: Any) -> None:
    _, report = trained
    assert report.main == "validation/f1_micro"
    assert report.metrics["validation/f1_micro"] > 0.95
    assert report.metrics["validation/accuracy"] > 0.85


def test_a_trained_model_says_labels_of_new_texts(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder, report = trained
    new = folder / "new.jsonl"
    new.write_text('{"text": "the wave of fish bird wind"}\n{"text": "the of"}\n', encoding="utf-8")
    run = str(folder / "runs" / "topics")
    assert main(["predict", run, "--input", str(new)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [sorted(answer["labels"]) for answer in answers] == [["sea", "sky"], []]
    assert set(answers[0]["scores"]) == set(WORDS)
    assert main(["evaluate", run, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["f1_micro"] == pytest.approx(report.metrics["validation/f1_micro"])


@pytest.mark.parametrize("written", [", ".join, json.dumps], ids=["commas", "JSON"])
def test_labels_may_be_a_text(tmp_path: Path, trained: Any, written: Any) -> None:
    values = plan(tmp_path, written)
    report = nlpkernel.run(Plan.of(values, base=tmp_path), runs_folder=tmp_path / "runs")
    assert report.metrics == trained[1].metrics


def test_the_rows_of_a_plan_show_their_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(write_toml(plan(tmp_path), lambda path: None), encoding="utf-8")
    assert main(["data", str(path), "--show", "40"]) == 0
    shown = capsys.readouterr().out
    assert "labels none" in shown
    assert ", labels sea, sky" in shown or ", labels sky, sea" in shown


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"pack": "joined", "long": "split"}, 'write pack = "rows"'),
        ({"fields": {"labels": "topics", "label": "topic"}}, "one `label`, or any number of `labels`"),
        ({"fields": {"labels": "topics", "tags": "topic"}}, "`tags` or `labels`"),
    ],
)
def test_what_does_not_go_together_is_a_mistake_in_the_plan(
    tmp_path: Path, data: dict[str, Any], said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        Plan.of(plan(tmp_path, **data), base=tmp_path)


def test_what_is_no_list_of_labels_is_named_with_its_line(tmp_path: Path) -> None:
    values = plan(tmp_path)
    with (tmp_path / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"text": "the sea", "topics": 1.5}\n')
    with pytest.raises(
        nlpkernel.errors.DataError, match=r"train\.jsonl:241:1.*is no list of labels but 1\.5"
    ):
        nlpkernel.run(Plan.of(values, base=tmp_path), runs_folder=tmp_path / "runs")


def test_a_label_that_is_never_trained_is_named(tmp_path: Path) -> None:
    values = plan(tmp_path)
    with (tmp_path / "held.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"text": "the sea", "topics": ["sea", "fire"]}\n')
    with pytest.raises(nlpkernel.errors.DataError, match=r"held\.jsonl:61:1.*'fire'"):
        nlpkernel.run(Plan.of(values, base=tmp_path), runs_folder=tmp_path / "runs")
