"""What is taken from a folder, what begins new, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from nlpkernel.context import Run
from nlpkernel.errors import CheckpointError, PlanError
from nlpkernel.events import Notice
from nlpkernel_hf.component import Hf

BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 60,
    "max_position_embeddings": 18,
}
CLASSES = ("no", "perhaps", "yes")


def saved(folder: Path, cls: Any = BertForMaskedLM, **values: Any) -> Path:
    torch.manual_seed(1)
    cls(BertConfig(**{**BERT, **values})).save_pretrained(folder)
    return folder


def changed(folder: Path, change: Any) -> None:
    """Write the weights anew, changed."""
    path = folder / "model.safetensors"
    tensors = dict(load_file(path))
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture
def told(run: Run) -> list[str]:
    """What the run says."""
    notices: list[str] = []
    run.bus.owner = "the test"
    run.bus.on(Notice, lambda notice: notices.append(notice.message))
    run.bus.freeze()
    return notices


def test_a_body_is_taken_and_its_new_head_is_told(lab: Any, told: list[str], tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    info = lab.info("classification", CLASSES)
    module = lab.model(Hf(folder=folder), info).module
    theirs = load_file(folder / "model.safetensors")
    for name, weight in theirs.items():
        if name.startswith(("bert.embeddings", "bert.encoder")):
            assert torch.equal(module.model.get_parameter(name), weight), name
    head = module.model.classifier.weight
    assert head.shape == (3, 32)
    assert 0.015 < float(head.detach().std()) < 0.025
    assert len(told) == 2
    assert told[0].startswith("4 parameters (1,155 numbers) are not in ")
    assert "begin new: bert.pooler.dense.bias, bert.pooler.dense.weight, classifier.bias" in told[0]
    assert "have no place in this model: cls.predictions.bias" in told[1]
    # The same on another layout, and another with another seed.
    assert torch.equal(head, lab.model(Hf(folder=folder), info).module.model.classifier.weight)
    assert not torch.equal(head, lab.model(Hf(folder=folder), info, seed=2).module.model.classifier.weight)


@pytest.mark.parametrize(
    ("names", "taken"),
    [(CLASSES, True), (("yes", "no", "perhaps"), False), (("no", "yes"), False), (None, True)],
)
def test_a_trained_head_is_taken_only_where_its_classes_are_those_of_the_data(
    lab: Any, tmp_path: Path, names: tuple[str, ...] | None, taken: bool
) -> None:
    values: dict[str, Any] = {"num_labels": 3} if names is None else {"id2label": dict(enumerate(names))}
    folder = saved(tmp_path / "saved", BertForSequenceClassification, **values)
    module = lab.model(Hf(folder=folder), lab.info("classification", CLASSES)).module
    theirs = load_file(folder / "model.safetensors")
    assert torch.equal(module.model.bert.pooler.dense.weight, theirs["bert.pooler.dense.weight"])
    head = module.model.classifier.weight
    assert (
        head.shape == theirs["classifier.weight"].shape and torch.equal(head, theirs["classifier.weight"])
    ) is taken


def test_a_folder_of_the_body_alone_and_one_with_old_names_are_read(lab: Any, tmp_path: Path) -> None:
    body = saved(tmp_path / "body", BertModel)
    weights = load_file(body / "model.safetensors")
    assert "embeddings.LayerNorm.weight" in weights

    def rename(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            )
            tensors[f"bert.{old}"] = tensors.pop(name) + 1

    older = shutil.copytree(body, tmp_path / "older")
    changed(older, rename)
    for folder, more in ((body, 0), (older, 1)):
        module = lab.model(Hf(folder=folder), lab.info("classification", CLASSES)).module
        for name, weight in weights.items():
            assert torch.equal(module.model.bert.get_parameter(name), weight + more), name


def test_a_tied_head_that_alone_is_in_the_file_fills_the_embedding(lab: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    table = load_file(folder / "model.safetensors")["bert.embeddings.word_embeddings.weight"]

    def move(tensors: dict[str, Any]) -> None:
        tensors["cls.predictions.decoder.weight"] = tensors.pop("bert.embeddings.word_embeddings.weight")

    changed(folder, move)
    module = lab.model(Hf(folder=folder), lab.info("mlm")).module
    assert torch.equal(module.model.bert.embeddings.word_embeddings.weight, table)


def refuses(lab: Any, code: str, said: str, kind: type[Exception] = PlanError, **given: Any) -> None:
    """Raises with this code, and says so."""
    settings = given.pop("settings", None) or Hf(folder=given.pop("folder"))
    info = given.pop("info", None) or lab.info("mlm", window=14)
    with pytest.raises(kind, match=code) as found:
        lab.model(settings, info)
    assert said in str(found.value)


def test_a_folder_that_holds_no_model_is_named(lab: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refuses(lab, "HFM001", "has no config.json", folder=tmp_path / "empty")
    refuses(lab, "HFM001", "is no folder on this machine", folder=Path("bert-base-uncased"))


def test_pickled_weights_are_refused(lab: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    refuses(lab, "HFM002", "has no model.safetensors", folder=folder)
    torch.save(weights, folder / "pytorch_model.bin")
    refuses(lab, "HFM002", "pytorch_model.bin, which are pickles", folder=folder)


def test_a_configuration_that_the_library_does_not_know_is_refused(lab: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    path = folder / "config.json"
    values = json.loads(path.read_text())
    for change, said in (
        ({"model_type": "brt"}, "knows no model_type 'brt'"),
        ({"model_type": None}, "has no model_type"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
    ):
        path.write_text(json.dumps({**values, **change}))
        refuses(lab, "HFM003", said, folder=folder)
    path.write_text("{")
    refuses(lab, "HFM003", str(path), folder=folder)


def test_a_vocabulary_or_rows_that_do_not_fit_are_told_with_the_fix(lab: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    said = f'tokenizer = {{ use = "pretrained", path = "{folder}" }}'
    refuses(lab, "HFM004", said, folder=folder, info=lab.info("mlm", vocabulary=61))
    refuses(lab, "HFM005", "a window of at most 17", folder=folder, info=lab.info("mlm", window=18))
    assert lab.model(Hf(folder=folder), lab.info("mlm", vocabulary=60, window=17))


def test_weights_of_another_model_are_refused(lab: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    inner = "bert.encoder.layer.1.output.dense.weight"

    def lose(tensors: dict[str, Any]) -> None:
        del tensors[inner]

    def widen(tensors: dict[str, Any]) -> None:
        tensors[inner] = torch.zeros(32, 65)

    def none(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[f"other.{name}"] = tensors.pop(name)

    for change, said in (
        (lose, f"it lacks {inner}"),
        (widen, f"{inner} is [32, 65] there, and [32, 64] in the model"),
        (none, "it lacks"),
    ):
        twin = shutil.copytree(folder, tmp_path / change.__name__)
        changed(twin, change)
        refuses(lab, "HFM007", said, CheckpointError, folder=twin)
    (folder / "model.safetensors").write_bytes(b"nothing")
    refuses(lab, "HFM007", "cannot be read", CheckpointError, folder=folder)


def test_an_index_of_shards_that_are_not_there_is_refused(lab: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}))
    refuses(lab, "HFM007", "one.safetensors", CheckpointError, folder=folder)
    index.write_text("[]")
    refuses(lab, "HFM007", "no index of shards", CheckpointError, folder=folder)


def test_a_model_is_opened_again_when_the_folder_is_gone(lab: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    settings, info = Hf(folder=folder), lab.info("mlm", window=14)
    before = lab.structure(settings, info)
    shutil.rmtree(folder)
    again = lab.structure(settings, info)
    assert {name: each.shape for name, each in again.module.named_parameters()} == {
        name: each.shape for name, each in before.module.named_parameters()
    }
    # Tables that no version holds are made again.
    table = torch.empty(1, 18, dtype=torch.long)
    again.initialise("model.bert.embeddings.position_ids", table, torch.Generator())
    assert torch.equal(table[0], torch.arange(18))
    weight = torch.empty(2, 2)
    with pytest.raises(PlanError, match="HFM002"):
        again.initialise("model.bert.encoder.layer.0.output.dense.weight", weight, torch.Generator())
