"""Encoder-decoders, towers, images and limited attention on several workers: each has the curve of one process."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from nlpkernel.engine.opening import activate, reading
from nlpkernel.plan import Plan
from nlpkernel_sdk import shapes

STEPS, AT = 12, 7
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "data 2": (2, {}),
    "zero 3": (2, {"communicator": {"shard": 3}}),
    "tensor 2": (2, {"communicator": {"tensor": 2}}),
    "pipeline 2": (2, {"communicator": {"pipeline": 2}}),
}
#: Task, model, and layouts. A micro-batch of pairs is compared as a whole, whichever worker has it.
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
    "image-text": (
        "image-text",
        {"use": "image-text", "layers": 2, "image_layers": 1, "projection": 24},
        tuple(LAYOUTS),
    ),
}


def _drawn(lab: Any) -> dict[str, Any]:
    """Data with images."""
    path = lab.root / "drawn.jsonl"
    if not path.exists():
        shapes.write(lab.root, "drawn", each=2, size=16)
    return {
        "paths": [str(path)],
        "format": "jsonl",
        "tokenizer": {"use": "wordpiece", "vocabulary": 120},
        "fields": {"text": "caption", "image": "path"},
        "images": {"size": 16},
        "task": "image-text",
        "long": "truncate",
    }


def _plan(lab: Any, task: str, model: dict[str, Any]) -> dict[str, Any]:
    if task == "image-text":
        return {"data": _drawn(lab), "model": model, "train": {"steps": STEPS, "micro": 4}}
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


def test_a_run_of_images_on_two_workers_is_taken_up_bit_for_bit(lab: Any) -> None:
    task, model, _ = MODELS["image-text"]
    plan = _plan(lab, task, {**model, "dropout": 0.2})
    plan["checkpoint"] = {"use": "store", "every": AT, "keep": {"last": 9}}
    through = lab.run("images through", 2, **plan)
    folder = through.folder
    run, hooks, composition = activate(Plan.load(folder / "plan.toml"), folder)
    with reading(run, hooks, composition) as store:
        version = next(info.name for info in store.list() if info.step == AT)
    again = lab.run("images again", 2, of="images through", resume=version, **plan)
    assert again.losses[STEPS:] == through.losses[AT:]
    assert all(torch.equal(again.weights[name], each) for name, each in through.weights.items())
