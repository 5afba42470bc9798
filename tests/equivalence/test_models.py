"""Encoder-decoders, towers and limited attention on several workers: each has the curve of one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

STEPS = 12
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "data 2": (2, {}),
    "zero 3": (2, {"communicator": {"shard": 3}}),
    "tensor 2": (2, {"communicator": {"tensor": 2}}),
    "pipeline 2": (2, {"communicator": {"pipeline": 2}}),
}
#: Task, model, and layouts. A batch of pairs is compared as a whole, so data parallelism has no part in those.
MODELS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "encoder-decoder": ("seq2seq", {"use": "encoder-decoder", "layers": 2, "dropout": 0.0}, tuple(LAYOUTS)),
    "encoder-decoder, post": (
        "seq2seq",
        {"use": "encoder-decoder", "layers": 1, "decoder_layers": 2, "dropout": 0.0, "order": "post"},
        ("tensor 2", "pipeline 2"),
    ),
    "span": ("lm", {"use": "llama", "layers": 2, "span": 5}, ("tensor 2", "pipeline 2")),
    "separate towers": (
        "pairs",
        {"use": "encoder", "layers": 2, "towers": "separate", "scale": True},
        ("tensor 2", "pipeline 2"),
    ),
}


def _plan(lab: Any, task: str, model: dict[str, Any]) -> dict[str, Any]:
    path = lab.root / "pairs.jsonl"
    if not path.exists():
        lines = (lab.root / "corpus.txt").read_text().splitlines()
        records = ({"text": line, "other": " ".join(reversed(line.split()))} for line in lines)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    data: dict[str, Any] = {
        "paths": [str(path)],
        "format": "jsonl",
        "tokenizer": {"use": "wordpiece", "vocabulary": 64},
    }
    if task != "lm":
        data |= {"fields": {"target": "other"}, "task": task, "long": "truncate"}
    return {"data": data, "model": model, "train": {"steps": STEPS}}


@pytest.mark.parametrize(
    ("name", "layout"), [(name, layout) for name, (_, _, layouts) in MODELS.items() for layout in layouts]
)
def test_a_layout_gives_the_curve_of_one_process(lab: Any, name: str, layout: str) -> None:
    task, model, _ = MODELS[name]
    workers, changes = LAYOUTS[layout]
    plan = _plan(lab, task, model)
    one = lab.run(f"{name}, one", **plan)
    ran = lab.run(f"{name}, {layout}", workers, **plan, **changes)
    assert len(one.losses) == len(ran.losses) == STEPS
    assert one.losses[-1] < one.losses[0]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ran.losses, one.losses, strict=True))
    assert worst <= 2e-6, f"losses differ by {worst:.1e}"
    gap = max(float((ran.weights[key] - each).abs().max()) for key, each in one.weights.items())
    assert gap <= 1e-4
