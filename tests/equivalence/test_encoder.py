"""Encoders on several workers: classification and masked language modelling have the curve of one process, and go on
bit for bit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nlpkernel.cli import main

ENCODER: dict[str, Any] = {"use": "encoder", "layers": 2}
STEPS = 20
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "data 2": (2, {}),
    "data 2, ragged": (2, {"train": {"micro": 3}}),
    "zero 3": (2, {"communicator": {"shard": 3}}),
    "tensor 2": (2, {"communicator": {"tensor": 2}}),
    "pipeline 2": (2, {"communicator": {"pipeline": 2}}),
}


@pytest.fixture(params=["classification", "mlm"])
def plan(request: Any, lab: Any) -> dict[str, Any]:
    """What is changed for a task."""
    return planned(lab, request.param)


def planned(lab: Any, task: str) -> dict[str, Any]:
    lines = (lab.root / "corpus.txt").read_text().splitlines()
    path = lab.root / "labelled.jsonl"
    if not path.exists():
        records = ({"text": line, "y": ("short", "long")[len(line) > 20]} for line in lines)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    data: dict[str, Any] = {
        "paths": [str(path)],
        "format": "jsonl",
        "long": "truncate",
        "tokenizer": {"use": "wordpiece", "vocabulary": 64, "special": ["[MASK]"]},
    }
    if task == "classification":
        weights = {"short": 3.0}
        data |= {
            "fields": {"label": "y"},
            "task": {"use": task, "weights": weights, "smoothing": 0.1, "main": "loss"},
        }
    else:
        data |= {"task": task}
    return {"data": data, "model": ENCODER, "name": task}


def changed(plan: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    train = {"steps": STEPS, **changes.get("train", {})}
    rest = {name: value for name, value in changes.items() if name != "train"}
    return {"data": plan["data"], "model": plan["model"], "train": train, **rest}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_gives_the_curve_of_one_process(lab: Any, plan: dict[str, Any], layout: str) -> None:
    workers, changes = LAYOUTS[layout]
    one = lab.run(f"{plan['name']} on one", **changed(plan, {}))
    ran = lab.run(f"{plan['name']}, {layout}", workers, **changed(plan, changes))
    assert len(one.losses) == len(ran.losses) == STEPS
    assert one.losses[-1] < one.losses[0]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ran.losses, one.losses, strict=True))
    assert worst <= 2e-6, f"losses differ by {worst:.1e}"
    assert ran.metrics == pytest.approx(one.metrics, rel=2e-6)
    gap = max(float((ran.weights[name] - each).abs().max()) for name, each in one.weights.items())
    assert gap <= 1e-4


@pytest.mark.parametrize("task", ["classification", "mlm"])
def test_a_run_that_is_killed_goes_on_bit_for_bit(
    lab: Any, task: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.root)
    model = {**ENCODER, "dropout": 0.2}
    path = lab.plan(f"proved {task}", **{**changed(planned(lab, task), {}), "model": model})
    assert main(["verify-resume", str(path), "--steps", "8", "--kills", "1", "--json"]) == 0
    proof = json.loads(capsys.readouterr().out)
    assert proof["holds"]
    assert [part["killed"] for part in proof["parts"]] == [True, False]
