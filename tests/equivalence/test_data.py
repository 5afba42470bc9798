"""What a data pipeline gives is the same on any number of workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

ROWS = {"pack": "rows", "long": "truncate"}
PIPELINES: dict[str, dict[str, Any]] = {
    "stream": {"stream": {"buffer": 32}, "validation_paths": ["held.txt"], "validation": None},
    "stratified": {"sampling": "stratified", "labels": True},
    "token-budget": {"sampling": {"use": "token-budget", "tokens": 128}},
    "augmented": {"augment": [{"use": "swap", "strength": 0.3}, {"use": "delete", "strength": 0.1}]},
    "cleaned": {
        "stages": [{"use": "duplicates"}, {"use": "length", "unit": "words", "most": 6}],
        "workers": 1,
    },
}


@pytest.mark.parametrize("name", PIPELINES)
def test_two_workers_have_the_curve_of_one(lab, name):
    data = {**ROWS, **PIPELINES[name]}
    lines = (lab.root / "corpus.txt").read_text().splitlines()
    (lab.root / "held.txt").write_text("\n".join(lines[:20]) + "\n")
    if data.pop("labels", False):
        path = lab.root / "labelled.jsonl"
        records = ({"text": line, "y": len(line) % 2} for line in lines)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        data |= {"paths": [str(path)], "fields": {"label": "y"}, "format": "jsonl"}
    if "validation_paths" in data:
        data |= {"validation_paths": [str(lab.root / "held.txt")]}
        del data["validation"]
    changes = {"data": data, "train": {"steps": 20, "micro": 4}, "model": {"layers": 1}}
    one, two = lab.run(f"{name} on 1", **changes), lab.run(f"{name} on 2", 2, **changes)
    assert len(one.losses) == len(two.losses) == 20
    assert max(abs(a - b) for a, b in zip(one.losses, two.losses, strict=True)) < 2e-6
    assert one.metrics == pytest.approx(two.metrics, rel=2e-6)
