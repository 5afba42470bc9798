"""Whole runs through the public way in: a plan trains, `generate` writes from the saved version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.errors import PlanError
from nlpkernel_sdk import letters

LETTERS = f"{letters.__file__}:Letters"


def _plan(**model: Any) -> nlpkernel.Plan:
    return nlpkernel.Plan.of(
        {
            "name": "first",
            "train": {"steps": 80, "batch": 8, "threads": 1},
            "data": {"use": LETTERS},
            "model": model,
            "optimizer": {"use": "tiny", "lr": 0.01},
            "checkpoint": {"use": "store"},
        }
    )


@pytest.mark.parametrize(
    "model",
    [
        {"use": "gpt", "layers": 2, "width": 32, "init_std": 0.1, "checkpointing": 2},
        {"use": "llama", "layers": 2, "width": 32, "init_std": 0.1, "logits": "chunked"},
    ],
    ids=["gpt", "llama"],
)
def test_a_plan_trains_a_model_that_writes_what_it_learned(
    tmp_path: Path, model: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report = nlpkernel.run(_plan(**model), runs_folder=tmp_path)
    assert report.metrics["validation/loss"] < 0.5
    capsys.readouterr()

    def generate(*words: str) -> tuple[int, str, str]:
        code = main(["generate", str(tmp_path / "first"), "--temperature", "0", *words])
        return code, *capsys.readouterr()

    written = "the cat sat on the mat. the cat sat on the mat. \n"
    assert generate("--prompt", "the cat", "--tokens", "41") == (0, written, "")
    _, out, _ = generate("--prompt", "on", "--tokens", "9", "--json", "--stop", ".")
    row = json.loads(out)
    assert (row["text"], row["ended"], row["tokens"]) == (" the mat", "stop", 9)
    code, out, err = generate("--prompt", "on", "--top-p", "2")
    assert (code, out) == (2, "")
    assert err.startswith("error: TRF005 --top-p is 2.0")
    code, out, err = generate()
    assert (code, out) == (2, "")
    assert err.startswith("error: TRF002")


def test_a_plan_with_settings_that_do_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="width is 128 and does not divide into 3 heads"):
        nlpkernel.run(_plan(use="gpt", heads=3), runs_folder=tmp_path)
    with pytest.raises(PlanError, match="TRF001 context is 8"):
        nlpkernel.run(_plan(use="gpt", context=8), runs_folder=tmp_path)
    with pytest.raises(PlanError, match="there is no preset 'nanp'"):
        nlpkernel.run(_plan(use="gpt", preset="nanp"), runs_folder=tmp_path)


def test_the_plan_stands_over_the_preset_and_the_preset_over_the_default() -> None:
    def model(**values: Any) -> Any:
        return _plan(use="gpt", **values).compose().slot("model").component

    assert (model().layers, model().width, model().bias) == (4, 128, False)
    assert (model(preset="gpt2").layers, model(preset="gpt2").bias) == (12, True)
    assert (model(preset="gpt2", bias=False).width, model(preset="gpt2", bias=False).bias) == (768, False)
    assert [model(checkpointing=mode).checkpointing for mode in ("none", "full", 2)] == ["none", "full", 2]
