"""The component in plans, with the data, stores and commands of other distributions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.errors import PlanError
from nlpkernel.events import Notice, StepCompleted
from nlpkernel_sdk import tiny_values

for other in (
    "nlpkernel_text",
    "nlpkernel_tasks",
    "nlpkernel_store",
    "nlpkernel_transformer",
    "nlpkernel_optim",
):
    pytest.importorskip(other)

BODY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def plan_of(folder: Path, model: dict[str, Any], **data: Any) -> nlpkernel.Plan:
    draws = torch.Generator().manual_seed(1)
    words = [("cold snow ice", "warm sun beach")[number % 2].split() for number in range(60)]
    rows = [
        {"text": " ".join(each[int(at)] for at in torch.randint(3, (5,), generator=draws)), "y": each[0]}
        for each in words
    ]
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = tiny_values(
        name="ran",
        train={"steps": 12, "batch": 8, "seed": 1, "threads": 1, "log": {"every": 1}},
        data={"use": "text", "paths": ["texts.jsonl"], "window": 12, **data},
        model={"use": "hf", **model},
        optimizer={"use": "adamw", "lr": 0.01},
        checkpoint={"use": "store", "every": 6},
    )
    return nlpkernel.Plan.of(values, base=folder)


def watched(plan: nlpkernel.Plan, folder: Path) -> tuple[list[float], list[str]]:
    """Losses of all steps, and what was said."""
    events = list(nlpkernel.train(plan, runs_folder=folder))
    losses = [float(event.sums["loss"]) for event in events if isinstance(event, StepCompleted)]
    return losses, [event.message for event in events if isinstance(event, Notice) and event.source == "hf"]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_trained_decoder_generates_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    config = {"n_embd": 32, "n_layer": 2, "n_head": 4} if kind == "gpt2" else BODY
    plan = plan_of(
        tmp_path,
        {"config": {"model_type": kind, **config}},
        fields={"text": "text"},
        pack="isolated",
        tokenizer={"use": "bytes"},
    )
    losses, told = watched(plan, tmp_path / "runs")
    assert losses[-1] < 0.8 * losses[0]
    assert told == []
    again = ["generate", str(tmp_path / "runs" / "ran"), "--prompt", "snow", "--tokens", "30", "--json"]
    assert main([*again, "--temperature", "0"]) == 0
    # More than the context of 12: the window slides.
    assert json.loads(capsys.readouterr().out)["tokens"] > 0


def test_a_folder_is_fine_tuned_and_its_version_opens_without_it(tmp_path: Path) -> None:
    values = {**BODY, "vocab_size": 300, "max_position_embeddings": 16}
    torch.manual_seed(1)
    BertForMaskedLM(BertConfig(**values)).save_pretrained(tmp_path / "saved")
    data = {
        "fields": {"label": "y"},
        "pack": "rows",
        "long": "truncate",
        "tokenizer": {"use": "bytes"},
        "task": "classification",
    }
    plan = plan_of(tmp_path, {"folder": "saved", "dropout": 0.0}, **data)
    losses, told = watched(plan, tmp_path / "runs")
    assert losses[-1] < 0.9 * losses[0]
    assert "begin new: bert.pooler.dense.bias" in told[0]
    shutil.rmtree(tmp_path / "saved")
    opened = nlpkernel.open_model(tmp_path / "runs" / "ran", device="cpu")
    assert opened.info.labels == ("cold", "warm")
    row = {"tokens": opened.codec.encode("cold snow ice"), "label": 0}
    logits = opened.model(**opened.task.inputs(opened.task.batch([row]))).logits
    assert logits.shape == (1, 2)
    assert torch.isfinite(logits).all()


def test_a_tokenizer_that_does_not_fit_stops_the_run_before_its_first_step(tmp_path: Path) -> None:
    values = {**BODY, "vocab_size": 100, "max_position_embeddings": 16}
    BertForMaskedLM(BertConfig(**values)).save_pretrained(tmp_path / "saved")
    plan = plan_of(tmp_path, {"folder": "saved"}, fields={"text": "text"}, tokenizer={"use": "bytes"})
    with pytest.raises(PlanError, match=r"config\.json: HFM004 the model has 100 entries(.|\n)*pretrained"):
        nlpkernel.run(plan, runs_folder=tmp_path / "runs")
