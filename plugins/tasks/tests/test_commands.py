"""evaluate, predict and compare, on runs of each task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.errors import DataError
from nlpkernel_sdk import tiny_values

pytest.importorskip("nlpkernel_text")
pytest.importorskip("nlpkernel_transformer")

WORDS = {"cold": "snow ice frost", "warm": "sun beach heat", "wet": "rain cloud storm"}


def lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def texts(count: int, seed: int) -> list[tuple[str, str]]:
    """A class and three of its words."""
    draws = np.random.default_rng(seed)
    kinds = draws.choice(list(WORDS), count).tolist()
    return [(kind, " ".join(draws.choice(WORDS[kind].split(), 3))) for kind in kinds]


def train(
    folder: Path, name: str, data: dict[str, Any], model: dict[str, Any], steps: int = 60, lr: float = 0.01
) -> Path:
    values = tiny_values(
        data={
            "use": "text",
            "paths": ["train.jsonl"],
            "validation_paths": ["held.jsonl"],
            "pack": "rows",
            "long": "truncate",
            "window": 16,
            "tokenizer": {"use": "wordpiece", "vocabulary": 120},
            **data,
        },
        model={"preset": "nano", "layers": 1, "width": 32, **model},
        train={"steps": steps, "batch": 16, "seed": 1, "threads": 1, "log": {"every": 50}},
        optimizer={"use": "adamw", "lr": lr},
        checkpoint={"use": "store"},
    )
    return Path(nlpkernel.run(nlpkernel.Plan.of(values, base=folder), runs_folder=folder / name).folder)


def said(capsys: pytest.CaptureFixture[str], *args: object) -> Any:
    assert main([str(arg) for arg in args]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs: one that has learnt, and one that has hardly begun."""
    folder = tmp_path_factory.mktemp("classes")
    for name, seed, count in (("train", 1, 120), ("held", 2, 40), ("other", 3, 30)):
        lines(folder / f"{name}.jsonl", [{"text": text, "y": kind} for kind, text in texts(count, seed)])
    data = {"fields": {"label": "y"}, "task": "classification"}
    train(folder, "good", data, {"use": "encoder"})
    train(folder, "poor", data, {"use": "encoder"}, steps=1)
    return folder


def run_of(folder: Path, name: str) -> Path:
    (found,) = (path for path in (folder / name).iterdir() if path.is_dir() and not path.is_symlink())
    return found


def test_evaluate_gives_what_the_run_measured_and_more(
    classes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(classes, "good")
    found = json.loads(said(capsys, "evaluate", run, "--json", "--confusion", "--worst", 2))
    report = json.loads((run / "report.json").read_text())
    for name, value in found["metrics"].items():
        assert value == pytest.approx(report["metrics"][f"validation/{name}"], abs=1e-9)
    assert found["samples"] == 40
    counts = np.array(found["confusion"]["counts"])
    assert found["confusion"]["labels"] == ["cold", "warm", "wet"]
    assert counts.sum() == 40
    assert np.trace(counts) == round(40 * found["metrics"]["accuracy"])
    losses = [worst["loss"] for worst in found["worst"]]
    assert losses == sorted(losses, reverse=True)
    assert found["worst"][0]["truth"] in WORDS
    assert found["worst"][0]["text"].split()[0] in " ".join(WORDS.values())


def test_evaluate_on_another_file_is_for_a_person_too(
    classes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, answers = run_of(classes, "good"), classes / "answers.jsonl"
    shown = said(
        capsys,
        "evaluate",
        run,
        "--data",
        classes / "other.jsonl",
        "--confusion",
        "--worst",
        1,
        "--answers",
        answers,
    )
    assert "30 samples" in shown
    assert "true \\ said" in shown
    records = [json.loads(line) for line in answers.read_text().splitlines()]
    assert len(records) == 30
    assert records[4]["sample"].endswith("other.jsonl:5")
    right = np.mean([record["label"] == record["truth"] for record in records])
    assert f"accuracy           {right:.4f}" in shown


def test_case_d8_a_label_that_the_model_does_not_know_is_refused(
    classes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines(classes / "strange.jsonl", [{"text": "snow", "y": "cold"}, {"text": "fog", "y": "dim"}])
    assert main(["evaluate", str(run_of(classes, "good")), "--data", str(classes / "strange.jsonl")]) == 1
    error = capsys.readouterr().err
    assert "strange.jsonl:2:1: TXT033 the label 'dim' is none that the model was trained on" in error
    assert "cold, warm, wet" in error


def test_predict_needs_no_truth(classes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(classes / "new.jsonl", [{"text": "snow ice"}, {"text": "rain storm cloud"}])
    out = said(capsys, "predict", run_of(classes, "good"), "--input", classes / "new.jsonl")
    first, second = map(json.loads, out.splitlines())
    assert (first["label"], second["label"]) == ("cold", "wet")
    assert first["probability"] == max(first["scores"].values()) > 0.5
    assert sum(first["scores"].values()) == pytest.approx(1.0)
    assert second["sample"].endswith("new.jsonl:2")
    assert "truth" not in first


def test_compare_tells_a_good_model_from_a_poor_one_and_a_model_from_itself_not(
    classes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, poor = run_of(classes, "good"), run_of(classes, "poor")
    found = json.loads(said(capsys, "compare", poor, good, "--json", "--draws", 200))
    each = {metric["metric"]: metric for metric in found["metrics"]}
    assert each["accuracy"]["second"] > each["accuracy"]["first"]
    assert each["accuracy"]["low"] > 0
    assert each["accuracy"]["chance"] == 0.0
    assert each["loss"]["high"] < 0
    shown = said(capsys, "compare", good, good, "--draws", 100)
    assert "+0.0000 to +0.0000  1.000" in shown


def test_runs_of_other_samples_are_not_compared(classes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = str(run_of(classes, "good"))
    assert main(["compare", good, good, "--draws", "5"]) == 2
    assert "TSK010" in capsys.readouterr().err


def test_changed_data_is_not_what_was_held_out(classes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = run_of(classes, "good"), classes / "train.jsonl"
    before = path.read_text()
    try:
        path.write_text(before + json.dumps({"text": "ice", "y": "cold"}) + "\n")
        assert main(["evaluate", str(run)]) == 1
    finally:
        path.write_text(before)
    assert "TXT037" in capsys.readouterr().err


def test_tags_from_words_to_entities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draws = np.random.default_rng(0)

    def records(count: int) -> list[dict[str, Any]]:
        made = []
        for _ in range(count):
            words, tags = [], []
            for _ in range(draws.integers(2, 5)):
                if draws.random() < 0.4:
                    words += ["anna", "berg"]
                    tags += ["B-PER", "I-PER"]
                else:
                    words.append(str(draws.choice(["went", "home", "there"])))
                    tags.append("O")
            made.append({"w": words, "t": tags})
        return made

    lines(tmp_path / "train.jsonl", records(150))
    lines(tmp_path / "held.jsonl", records(30))
    data = {"fields": {"text": "w", "tags": "t"}, "task": {"use": "tokens", "main": "entity_f1"}}
    run = train(tmp_path, "runs", data, {"use": "encoder"}, steps=120)
    found = json.loads(said(capsys, "evaluate", run, "--json"))
    assert found["metrics"]["entity_f1"] > 0.95
    lines(tmp_path / "new.jsonl", [{"w": ["home", "anna", "berg", "went"]}])
    (answer,) = map(json.loads, said(capsys, "predict", run, "--input", tmp_path / "new.jsonl").splitlines())
    assert answer["words"] == ["home", "anna", "berg", "went"]
    assert answer["tags"] == ["O", "B-PER", "I-PER", "O"]
    assert answer["entities"] == [{"type": "PER", "text": "anna berg", "begin": 1, "end": 3}]


def test_as_many_tags_as_words(tmp_path: Path) -> None:
    lines(tmp_path / "train.jsonl", [{"w": ["a", "b"], "t": ["O"]}])
    lines(tmp_path / "held.jsonl", [{"w": ["a"], "t": ["O"]}])
    data = {"fields": {"text": "w", "tags": "t"}, "task": "tokens"}
    with pytest.raises(DataError, match=r"train\.jsonl:1:1: TXT005 .*'t' has 1 tags for 2 words"):
        train(tmp_path, "runs", data, {"use": "encoder"})


def test_a_second_text_is_learnt_written_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draws = np.random.default_rng(0)
    dictionary = {"snow": "schnee", "ice": "eis", "sun": "sonne", "rain": "regen"}

    def records(count: int) -> list[dict[str, Any]]:
        chosen = [draws.choice(list(dictionary), draws.integers(1, 4)).tolist() for _ in range(count)]
        return [{"en": " ".join(each), "de": " ".join(map(dictionary.__getitem__, each))} for each in chosen]

    lines(tmp_path / "train.jsonl", records(200))
    lines(tmp_path / "held.jsonl", records(20))
    task = {"use": "seq2seq", "beams": 2, "measures": ["chrf", "rouge"], "most": 16}
    data = {
        "fields": {"text": "en", "target": "de"},
        "task": task,
        "window": 32,
    }
    run = train(tmp_path, "runs", data, {"use": "encoder-decoder"}, steps=300, lr=0.003)
    found = json.loads(said(capsys, "evaluate", run, "--json", "--worst", 1))
    assert found["metrics"]["chrf"] > 95
    assert found["metrics"]["rouge_l"] > 95
    assert found["worst"][0]["reference"]
    lines(tmp_path / "new.jsonl", [{"en": "ice rain"}])
    asked = ("predict", run, "--input", tmp_path / "new.jsonl")
    for more in ((), ("--set", "data.task.beams=1")):
        (answer,) = map(json.loads, said(capsys, *asked, *more).splitlines())
        assert answer["text"] == "eis regen"
        assert answer["ended"]


def test_pairs_find_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{a}{b}" for a in "klmnp" for b in "aeiou"]
    draws = np.random.default_rng(0)
    chosen = [draws.choice(names, 2, replace=False).tolist() for _ in range(200)]
    records = [{"a": " ".join(each), "b": " ".join(reversed(each))} for each in chosen]
    lines(tmp_path / "train.jsonl", records[:160])
    lines(tmp_path / "held.jsonl", records[160:])
    data = {"fields": {"text": "a", "target": "b"}, "task": "pairs"}
    run = train(tmp_path, "runs", data, {"use": "encoder"}, steps=60)
    found = json.loads(said(capsys, "evaluate", run, "--json"))
    assert found["metrics"]["recall_1"] > 0.8
    report = json.loads((run / "report.json").read_text())
    assert found["metrics"]["mrr"] == pytest.approx(report["metrics"]["validation/mrr"])
    answers = said(capsys, "predict", run, "--input", tmp_path / "held.jsonl").splitlines()
    assert np.mean([json.loads(line)["likeness"] for line in answers]) > 0.5
    assert main(["compare", str(run), str(run)]) == 2
    assert "TSK010 the task 'pairs' counts nothing of single samples" in capsys.readouterr().err
