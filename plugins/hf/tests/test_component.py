"""Settings: what goes together, what a type takes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import nlpkernel
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_hf.component import Hf
from nlpkernel_sdk import tiny_values

README = Path(__file__).parent.parent / "README.md"


def refused(lab: Any, settings: Hf, task: str = "lm", **info: Any) -> str:
    with pytest.raises(PlanError) as found:
        lab.structure(settings, lab.info(task, **info))
    return str(found.value)


def test_a_model_comes_from_one_place(tmp_path: Path) -> None:
    def complaints(**given: Any) -> list[tuple[str, str]]:
        return list(Hf(**given).check_settings())

    assert complaints(config={"model_type": "gpt2"}) == complaints(folder=tmp_path) == []
    assert complaints()[0][0] == "folder"
    assert complaints(folder=tmp_path, config={"model_type": "gpt2"})[0][0] == "config"
    assert "model_type" in complaints(config={"n_embd": 8})[0][1]
    plan = tiny_values(model={"use": "hf", "config": {"n_embd": 8}})
    with pytest.raises(PlanError, match=r"model\.config|config has no model_type"):
        nlpkernel.Plan.of(plan, base=tmp_path).compose()


def test_a_type_or_a_value_that_is_misspelt_is_told(lab: Any) -> None:
    assert "did you mean 'gpt2'" in refused(lab, Hf(config={"model_type": "gpt22"}))
    message = refused(lab, Hf(config={"model_type": "llama", "hiden_size": 64}))
    assert "HFM003" in message
    assert "did you mean 'hidden_size'" in message
    message = refused(lab, lab.settings("bert", {"num_attention_heads": 5}), "mlm")
    assert "HFM003 the library does not build a 'bert'" in message
    assert "multiple of the number of attention heads" in message


def test_heads_that_do_not_divide_are_told_before_the_first_forward(lab: Any) -> None:
    values = {name: value for name, value in lab.configs["mixtral"].items() if name != "num_key_value_heads"}
    message = refused(lab, Hf(config={"model_type": "mixtral", **values}))
    assert "HFM003 4 attention heads do not divide into 8 groups" in message


def test_vocabulary_and_positions_come_from_the_data_unless_they_are_given(lab: Any) -> None:
    for kind, places in (("gpt2", 15), ("llama", 15)):
        module = lab.structure(lab.settings(kind), lab.info("lm")).module
        assert (module.model.config.vocab_size, module.context) == (50, places)
    given = lab.settings("llama", {"vocab_size": 70, "max_position_embeddings": 99})
    module = lab.structure(given, lab.info("lm")).module
    assert (module.model.get_input_embeddings().weight.shape[0], module.context) == (70, 99)
    # An encoder reads the token, too, that a decoder only predicts; RoBERTa's positions begin behind the padding's id.
    assert lab.structure(lab.settings("bert"), lab.info("mlm")).module.context == 16
    roberta = lab.structure(lab.settings("roberta"), lab.info("mlm")).module
    assert (roberta.context, roberta.model.config.max_position_embeddings) == (16, 18)
    assert lab.structure(lab.settings("t5"), lab.info("seq2seq")).module.context > 10**6
    assert "HFM004 the model has 40 entries, and the tokenizer 50" in refused(
        lab, lab.settings("gpt2", {"vocab_size": 40})
    )
    assert "HFM005" in refused(lab, lab.settings("gpt2", {"n_positions": 14}))
    assert "HFM005" in refused(lab, lab.settings("roberta", {"max_position_embeddings": 17}), "mlm")


def test_a_task_without_a_head_is_refused(lab: Any) -> None:
    for kind, task in (
        ("gpt2", "mlm"),
        ("bert", "seq2seq"),
        ("t5", "lm"),
        ("t5", "classification"),
        ("gpt2", "image-text"),
    ):
        assert f"HFM006 a model of the type {kind!r} has no head for the task {task!r}" in refused(
            lab, lab.settings(kind), task
        )


def test_dropout_takes_the_place_of_all_that_there_are(lab: Any) -> None:
    config = lab.structure(lab.settings("gpt2", dropout=0.25), lab.info("lm")).module.model.config
    assert (config.attn_pdrop, config.resid_pdrop, config.embd_pdrop) == (0.25, 0.25, 0.25)
    module = lab.structure(lab.settings("bert", dropout=0.0), lab.info("mlm")).module
    assert {each.p for each in module.modules() if isinstance(each, torch.nn.Dropout)} == {0.0}
    none = Hf(config={"model_type": "mamba", "hidden_size": 16, "num_hidden_layers": 1}, dropout=0.1)
    assert "HFM010 the configuration of 'mamba' has no dropout" in refused(lab, none)


def test_a_model_that_cannot_keep_documents_apart_says_so(lab: Any) -> None:
    sliding = Hf(config={"model_type": "mistral", **lab.configs["llama"], "sliding_window": 4})
    module = lab.model(sliding, lab.info("lm")).module
    tokens = lab.tokens()
    with pytest.raises(PlanError, match="HFM008"):
        module(tokens=tokens, positions=torch.zeros_like(tokens), documents=torch.zeros_like(tokens))
    assert module(tokens=tokens).logits.shape == (4, 15, 50)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "t5"])
def test_blocks_that_are_computed_again_give_the_same_gradients(lab: Any, kind: str) -> None:
    def gradients(checkpointing: Any) -> tuple[list[torch.Tensor], Any]:
        module = lab.of(kind, checkpointing=checkpointing, dropout=0.3).train()
        torch.manual_seed(5)
        given = {} if lab.task(kind) == "lm" else {"lengths": torch.tensor(lab.lengths)}
        if kind == "t5":
            given["target"] = lab.tokens(1, 6)
        module(tokens=lab.tokens(), **given).logits.square().mean().backward()
        return [each.grad for each in module.parameters()], module

    wanted, _ = gradients("none")
    for setting, count in (("full", 4 if kind == "t5" else 2), (2, 2 if kind == "t5" else 1)):
        found, module = gradients(setting)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert sum("forward" in vars(each) for each in module.modules()) == count


def test_checkpointing_needs_blocks(lab: Any) -> None:
    lab.structure(lab.settings("gpt2", checkpointing="full"), lab.info("lm"))
    message = refused(
        lab,
        Hf(
            config={"model_type": "bert", **lab.configs["bert"], "num_hidden_layers": 0}, checkpointing="full"
        ),
        "mlm",
    )
    assert "HFM010 the blocks of a 'bert' are not known" in message


def test_the_estimate_goes_by_what_the_configuration_names(lab: Any, tmp_path: Path) -> None:
    facts = lab.settings("llama", {"num_attention_heads": 8, "num_key_value_heads": 2}).estimate(
        Facts(task="lm")
    )
    assert (facts.blocks, facts.cuts, facts.parameters) == (2, 2, None)
    assert lab.settings("gpt2").estimate(Facts()).blocks == 2
    assert Hf(folder=tmp_path).estimate(Facts(task="lm")) == Facts(task="lm")
    assert lab.settings("t5").estimate(Facts(task="seq2seq")).blocks is None


def test_the_plans_in_the_readme_have_no_mistakes(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        path = tmp_path / f"plan{number}.toml"
        path.write_text(
            f'{block}\n[optimizer]\nuse = "adamw"\nlr = 1e-3\n[train]\nsteps = 1\n', encoding="utf-8"
        )
        assert nlpkernel.Plan.load(path).compose()
