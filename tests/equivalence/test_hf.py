"""Models of the library transformers on several workers: the curve of one process, and on again bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nlpkernel.engine.opening import activate, reading
from nlpkernel.plan import Plan
from nlpkernel_sdk import shapes

transformers = pytest.importorskip("transformers")

BODY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": BODY,
    "roberta": BODY,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "llama": {**BODY, "num_key_value_heads": 2},
    "mixtral": {**BODY, "num_key_value_heads": 2, "num_local_experts": 4},
    "t5": {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64},
    "clip": {"text_config": BODY, "vision_config": {**BODY, "patch_size": 8}, "projection_dim": 24},
}
TASKS = {"bert": "classification", "roberta": "mlm", "t5": "seq2seq", "clip": "image-text"}
#: A row is written once more, so that its data needs no second text.
ECHO = '''
import torch
from torch.nn.functional import cross_entropy, pad

from nlpkernel import component, hookimpl
from nlpkernel.hookspecs.task import Term


@component
class Echo:
    """The task."""

    @hookimpl
    def create_task(self, run):
        return Echoing()


class Echoing:
    name, main = "seq2seq", ("loss", "min")

    def batch(self, rows):
        texts = [torch.as_tensor([int(each) for each in row["tokens"]]) for row in rows]
        labels = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=-100)
        tokens = labels.clamp(min=0)
        lengths = torch.tensor([len(text) for text in texts])
        return {"tokens": tokens, "lengths": lengths, "target": pad(tokens, (1, -1)), "labels": labels}

    def weights(self, rows):
        return {"loss": float(sum(len(row["tokens"]) for row in rows))}

    def inputs(self, batch):
        return {name: batch[name] for name in ("tokens", "lengths", "target")}

    def loss(self, outputs, batch):
        logits = outputs.logits.flatten(0, 1).float()
        return (Term("loss", cross_entropy(logits, batch["labels"].flatten(), reduction="sum")),)

    def evaluate(self, forward, batch):
        return {"sum": self.loss(forward(**self.inputs(batch)), batch)[0].sum.double()}

    def value(self, counts):
        return {"loss": float(counts["sum"])}
'''
STEPS, AT = 12, 7
#: Layouts of two workers, each for some types.
LAYOUTS: list[tuple[str, str, int]] = [
    ("llama", "tensor", 2),
    ("llama", "shard", 3),
    ("llama", "pipeline", 2),
    ("mixtral", "tensor", 2),
    ("gpt2", "pipeline", 2),
    ("bert", "pipeline", 2),
    ("roberta", "shard", 3),
    ("clip", "shard", 3),
]


@pytest.fixture(scope="module")
def lab(lab: Any) -> Any:
    """The lab whose plans have the model that is given, and nothing of another."""
    plain = lab.plan

    def plan(name: str, *, model: dict[str, Any], **changes: Any) -> Path:
        path: Path = plain(name, **changes)
        path.write_text(json.dumps({**json.loads(path.read_text()), "model": model}))
        return path

    lab.plan = plan
    return lab


def planned(lab: Any, kind: str, **model: Any) -> dict[str, Any]:
    """What a plan says of a type of model: its settings, and data for what it does."""
    task = TASKS.get(kind, "lm")
    lines = (lab.root / "corpus.txt").read_text().splitlines()
    path = lab.root / "labelled.jsonl"
    if not path.exists():
        records = ({"text": line, "y": ("short", "long")[len(line) > 20]} for line in lines)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    data: dict[str, Any] = {"tokenizer": {"use": "wordpiece", "vocabulary": 64, "special": ["[MASK]"]}}
    if task == "classification":
        data |= {"paths": [str(path)], "format": "jsonl", "fields": {"label": "y"}, "long": "truncate"}
        data["task"] = {"use": task, "main": "loss"}
    elif task == "seq2seq":
        (lab.root / "echo.py").write_text(ECHO)
        data["task"] = {"use": f"{lab.root}/echo.py:Echo"}
    elif task == "mlm":
        data |= {"task": task}
    elif task == "image-text":
        path = lab.root / "drawn.jsonl"
        if not path.exists():
            shapes.write(lab.root, "drawn", each=2, size=16)
        data |= {"paths": [str(path)], "format": "jsonl", "long": "truncate", "task": task}
        data |= {"fields": {"text": "caption", "image": "path"}, "images": {"size": 16}}
        data["tokenizer"] = {"use": "wordpiece", "vocabulary": 120}
    source = {"config": {"model_type": kind, **CONFIGS[kind]}} if "folder" not in model else {}
    return {
        "data": data,
        "model": {"use": "hf", "dropout": 0.0, **source, **model},
        "optimizer": {"use": "adamw", "lr": 5e-3},
        # A text is told from the other images of a micro-batch.
        "train": {"steps": STEPS, **({"micro": 4} if task == "image-text" else {})},
        "checkpoint": {"use": "store", "every": AT, "keep": {"last": 9}},
    }


def close(ran: Any, one: Any) -> None:
    assert len(one.losses) == len(ran.losses) == STEPS
    assert min(one.losses[-3:]) < one.losses[0]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ran.losses, one.losses, strict=True))
    assert worst <= 3e-6, f"losses differ by {worst:.1e}"
    # A key's bias changes no attention: its gradient is rounding alone, which Adam makes as large as any.
    named = {name: each for name, each in one.weights.items() if not name.endswith("k_proj.bias")}
    gap = max(float((ran.weights[name] - each).abs().max()) for name, each in named.items())
    assert gap <= 1e-4


@pytest.mark.parametrize("kind", CONFIGS)
def test_two_workers_have_the_curve_of_one(lab: Any, kind: str) -> None:
    plan = planned(lab, kind)
    close(lab.run(f"{kind} on two", 2, **plan), lab.run(f"{kind} on one", **plan))


@pytest.mark.parametrize(("kind", "layout", "size"), LAYOUTS)
def test_other_layouts_have_the_same_curve(lab: Any, kind: str, layout: str, size: int) -> None:
    plan = planned(lab, kind)
    one = lab.run(f"{kind} on one", **plan)
    close(lab.run(f"{kind}, {layout} {size}", 2, **plan, communicator={layout: size}), one)


def test_blocks_that_are_computed_again_have_the_same_curve(lab: Any) -> None:
    one = lab.run("llama on one", **planned(lab, "llama"))
    for name, layout in (("data 2", {}), ("zero 3", {"shard": 3})):
        plan = planned(lab, "llama", checkpointing="full")
        close(lab.run(f"llama again, {name}", 2, **plan, communicator=layout), one)


def version_at(folder: Path, step: int) -> str:
    run, hooks, composition = activate(Plan.load(folder / "plan.toml"), folder)
    with reading(run, hooks, composition) as store:
        return next(info.name for info in store.list() if info.step == step)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_run_on_two_workers_is_taken_up_bit_for_bit(lab: Any, kind: str) -> None:
    plan = planned(lab, kind, dropout=0.2)
    through = lab.run(f"{kind} through", 2, **plan)
    version = version_at(through.folder, AT)
    again = lab.run(f"{kind} again", 2, of=f"{kind} through", resume=version, **plan)
    assert again.losses[STEPS:] == through.losses[AT:]
    assert all(torch.equal(again.weights[name], each) for name, each in through.weights.items())


def test_a_folder_is_trained_on_by_two_workers_as_by_one(lab: Any) -> None:
    values = {**BODY, "vocab_size": 80, "max_position_embeddings": 40}
    torch.manual_seed(3)
    saved = transformers.AutoModelForMaskedLM.from_config(transformers.BertConfig(**values))
    saved.save_pretrained(lab.root / "saved")
    plan = planned(lab, "bert", folder=str(lab.root / "saved"))
    one = lab.run("folder on one", **plan)
    close(lab.run("folder on two", 2, **plan), one)
    # It began at what the folder holds, and has moved from there.
    before = saved.bert.encoder.layer[0].output.dense.weight
    after = one.weights["model.bert.encoder.layer.0.output.dense.weight"]
    assert 0 < float((after - before.detach()).abs().max()) < 0.05
