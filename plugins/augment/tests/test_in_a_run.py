"""Augmentations in a plan, through the data component of another distribution."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import nlpkernel
from nlpkernel.events import StepCompleted
from nlpkernel_sdk import tiny_values

README = Path(__file__).parent.parent / "README.md"


def trained(folder: Path, name: str, seed: int, augment: list[object]) -> list[float]:
    """The losses of a tiny run."""
    rows = [
        {"text": f"one two three four five six seven eight {'a dog bit a man ' * (at % 3)}"}
        for at in range(8)
    ]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = tiny_values(
        data={
            "use": "text",
            "paths": ["docs.jsonl"],
            "window": 64,
            "validation": 0,
            "pack": "rows",
            "long": "truncate",
            "augment": augment,
        },
        model={"use": "gpt", "preset": "nano", "layers": 1, "width": 32},
        train={"steps": 3, "batch": 4, "seed": seed, "log": {"every": 1}},
    )
    events = nlpkernel.train(nlpkernel.Plan.of(values, base=folder), runs_folder=folder / name)
    return [float(event.sums["loss"]) for event in events if isinstance(event, StepCompleted)]


def test_all_augmentations_train_in_a_plan_and_repeat_themselves(tmp_path: Path, wordnet: Path) -> None:
    pytest.importorskip("nlpkernel_text")
    pytest.importorskip("nlpkernel_transformer")
    steps: list[object] = [
        {"use": "synonyms", "path": str(wordnet), "strength": 0.5},
        {"use": "insert"},
        {"use": "swap"},
        {"use": "delete"},
        {"use": "typos"},
    ]
    first = trained(tmp_path, "first", 1, steps)
    assert len(first) == 3
    assert first == trained(tmp_path, "again", 1, steps)
    assert first != trained(tmp_path, "plain", 1, [])


def test_the_plan_in_the_readme_has_no_mistakes(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```toml\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    path = tmp_path / "plan.toml"
    rest = (
        '[model]\nuse = "gpt"\npreset = "nano"\n[optimizer]\nuse = "adamw"\nlr = 1e-3\n[train]\nsteps = 1\n'
    )
    path.write_text(f"{block}\n{rest}", encoding="utf-8")
    assert nlpkernel.Plan.load(path)
