"""What is said of the parts of each type."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nlpkernel_hf.component import Hf

BLOCKS = {
    "bert": "model.bert.encoder.layer",
    "roberta": "model.roberta.encoder.layer",
    "gpt2": "model.transformer.h",
    "llama": "model.model.layers",
    "mixtral": "model.model.layers",
}
ENDS = {
    "bert": ("model.bert.embeddings.word_embeddings", "model.cls.predictions.decoder"),
    "roberta": ("model.roberta.embeddings.word_embeddings", "model.lm_head.decoder"),
    "gpt2": ("model.transformer.wte", "model.lm_head"),
    "llama": ("model.model.embed_tokens", "model.lm_head"),
    "mixtral": ("model.model.embed_tokens", "model.lm_head"),
    "t5": ("model.shared", "model.lm_head"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_blocks_ends_and_every_parameter_are_told(lab: Any, kind: str) -> None:
    made = lab.structure(lab.settings(kind), lab.info(lab.task(kind)))
    anatomy, named = made.anatomy, dict(made.module.named_parameters())
    assert anatomy.blocks == (
        () if kind == "t5" else tuple(f"{BLOCKS[kind]}.{number}" for number in range(2))
    )
    assert (anatomy.embedding, anatomy.head) == ENDS[kind]
    assert anatomy.parameters.keys() == named.keys()
    for name, facts in anatomy.parameters.items():
        assert facts.decay is (named[name].dim() > 1), name
        assert ("bias" in facts.tags) is name.endswith("bias"), name
        assert ("norm" in facts.tags) is ("norm" in name.lower() or ".ln_" in name), name
    tags = anatomy.parameters[f"{ENDS[kind][0]}.weight"].tags
    assert "embedding" in tags
    tied = kind not in ("llama", "mixtral")
    assert ("head" in tags) is tied
    ties = [group for group in anatomy.ties if f"{ENDS[kind][0]}.weight" in group]
    assert len(ties) == (1 if tied else 0)
    assert all(f"{ENDS[kind][1]}.weight" in group and group[0] in named for group in ties)


def test_attention_and_feed_forward_are_told_apart(lab: Any) -> None:
    for kind, attention, mlp in (
        ("gpt2", "model.transformer.h.0.attn.c_proj.weight", "model.transformer.h.0.mlp.c_proj.weight"),
        ("llama", "model.model.layers.1.self_attn.q_proj.weight", "model.model.layers.1.mlp.up_proj.weight"),
        (
            "bert",
            "model.bert.encoder.layer.0.attention.output.dense.weight",
            "model.bert.encoder.layer.0.intermediate.dense.weight",
        ),
        (
            "t5",
            "model.decoder.block.0.layer.1.EncDecAttention.k.weight",
            "model.encoder.block.1.layer.1.DenseReluDense.wi.weight",
        ),
    ):
        facts = lab.structure(lab.settings(kind), lab.info(lab.task(kind))).anatomy.parameters
        assert {"attention", "mlp"} & facts[attention].tags == {"attention"}
        assert {"attention", "mlp"} & facts[mlp].tags == {"mlp"}


def roles(lab: Any, settings: Hf) -> dict[str, str]:
    """Of the second block and the ends, what is cut."""
    made = lab.structure(settings, lab.info("lm"))
    short = {
        name.removeprefix("model.").replace("model.layers.1.", ""): facts.role
        for name, facts in made.anatomy.parameters.items()
        if "layers.0" not in name
    }
    return {name: role for name, role in short.items() if role != "replicate"}


ATTENTION = {
    "self_attn.q_proj.weight": "column",
    "self_attn.k_proj.weight": "column",
    "self_attn.v_proj.weight": "column",
    "self_attn.o_proj.weight": "row",
}
MLP = {"mlp.gate_proj.weight": "column", "mlp.up_proj.weight": "column", "mlp.down_proj.weight": "row"}
VOCABULARY = {"model.embed_tokens.weight": "vocab", "lm_head.weight": "vocab"}


def test_what_is_cut_is_what_the_librarys_plan_cuts(lab: Any) -> None:
    assert roles(lab, lab.settings("llama")) == {**ATTENTION, **MLP, **VOCABULARY}
    # Experts are no layers of their own.
    assert roles(lab, lab.settings("mixtral")) == {**ATTENTION, **VOCABULARY}
    # There is no plan for these.
    assert roles(lab, lab.settings("gpt2")) == {}
    biased = roles(lab, lab.settings("llama", {"attention_bias": True}))
    assert biased["self_attn.q_proj.bias"] == "column"
    assert "self_attn.o_proj.bias" not in biased


def test_what_would_need_gradients_to_be_added_up_stays_whole(lab: Any) -> None:
    settings = Hf(config={"model_type": "qwen3", **lab.configs["llama"], "head_dim": 8})
    assert roles(lab, settings) == {**MLP, **VOCABULARY}


def test_a_layer_of_a_class_of_its_own_stays_whole(lab: Any) -> None:
    # Its embedding scales what it gives, and the head is tied to it.
    settings = Hf(config={"model_type": "gemma3_text", **lab.configs["llama"], "head_dim": 8})
    assert not {"model.embed_tokens.weight", "lm_head.weight"} & roles(lab, settings).keys()


def test_a_tied_vocabulary_is_cut_at_both_ends_and_one_with_padding_at_none(lab: Any) -> None:
    tied = roles(lab, lab.settings("llama", {"tie_word_embeddings": True}))
    assert tied == {**ATTENTION, **MLP, "model.embed_tokens.weight": "vocab"}
    assert roles(lab, lab.settings("llama", {"pad_token_id": 0})) == {**ATTENTION, **MLP}


def test_what_stands_beside_the_body_is_the_head(lab: Any) -> None:
    made = lab.structure(lab.settings("bert"), lab.info("classification", ("a", "b")))
    facts = made.anatomy.parameters
    assert made.anatomy.head is None
    assert "head" in facts["model.classifier.weight"].tags
    assert "head" not in facts["model.bert.pooler.dense.weight"].tags


def test_blocks_that_share_biases_of_positions_are_not_named(lab: Any) -> None:
    for kind in ("t5", "deberta-v2"):
        config = {"model_type": kind, **lab.configs["t5" if kind == "t5" else "bert"]}
        if kind == "deberta-v2":
            config |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
        assert lab.structure(Hf(config=config), lab.info("pairs")).anatomy.blocks == ()


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        *((kind, "pairs") for kind in ENDS),
        *(
            (kind, task)
            for kind in ("bert", "roberta", "gpt2", "llama")
            for task in ("classification", "tokens")
        ),
        *((kind, None) for kind in ENDS),
    ],
)
def test_every_parameter_has_a_gradient(lab: Any, kind: str, task: str | None) -> None:
    task = task or lab.task(kind)
    module = lab.model(lab.settings(kind), lab.info(task, ("a", "b"))).module.train()
    given: dict[str, Any] = {"tokens": lab.tokens()}
    if task != "lm":
        given["lengths"] = torch.tensor(lab.lengths)
    if task in ("seq2seq", "pairs"):
        given["target"] = lab.tokens(1, 6)
    if task == "pairs":
        given["target_lengths"] = torch.tensor([6, 3, 1, 5])
    outputs = module(**given)
    chosen = outputs.hidden if task == "pairs" else outputs.logits
    chosen.square().sum().backward()
    assert [name for name, each in module.named_parameters() if each.grad is None] == []
