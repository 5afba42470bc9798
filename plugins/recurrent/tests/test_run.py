"""Whole runs through the public way in: a plan trains, is generated from, and goes on exactly after a stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import nlpkernel
from nlpkernel.cli import main
from nlpkernel_sdk import letters

LETTERS = f"{letters.__file__}:Letters"


def _content(name: str, steps: int, **model: Any) -> dict[str, Any]:
    return {
        "name": name,
        "train": {"steps": steps, "batch": 8, "threads": 1},
        "data": {"use": LETTERS},
        "model": {"use": "recurrent", "layers": 2, "width": 48, "init_std": 0.3, **model},
        "optimizer": {"use": "adamw", "lr": 0.01},
        "checkpoint": {"use": "store"},
    }


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_plan_trains_a_model_that_writes_what_it_learned(
    tmp_path: Path, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = nlpkernel.Plan.of(_content("first", 120, cell=cell))
    report = nlpkernel.run(plan, runs_folder=tmp_path)
    assert report.metrics["validation/loss"] < 0.5
    capsys.readouterr()
    words = [
        "generate",
        str(tmp_path / "first"),
        "--temperature",
        "0",
        "--prompt",
        "the cat",
        "--tokens",
        "41",
    ]
    assert main(words) == 0
    assert capsys.readouterr().out == "the cat sat on the mat. the cat sat on the mat. \n"


def test_a_run_that_stops_goes_on_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(_content("proved", 20, dropout=0.2)))
    assert main(["verify-resume", str(path), "--steps", "6", "--kills", "1", "--json"]) == 0
    proof = json.loads(capsys.readouterr().out)
    assert proof["holds"]
    assert [part["killed"] for part in proof["parts"]] == [True, False]


def test_a_saved_version_opens_with_the_same_weights(tmp_path: Path) -> None:
    plan = nlpkernel.Plan.of(_content("first", 5))
    nlpkernel.run(plan, runs_folder=tmp_path)
    one, other = (nlpkernel.open_model(str(tmp_path / "first"), device="cpu").model for _ in range(2))
    tokens = torch.arange(20)[None]
    assert torch.equal(one(tokens).logits, other(tokens).logits)
    assert one.head.weight is one.embedding.weight
