"""CLIP: the same logits, loss and first values as the library's own; sizes that come from the data; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_hf.component import Hf
from nlpkernel_tasks.image_text import ImagePairing

TOWER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CONFIG: dict[str, Any] = {
    "model_type": "clip",
    "projection_dim": 24,
    "text_config": TOWER,
    "vision_config": {**TOWER, "hidden_size": 48, "patch_size": 8},
}
LENGTHS = (15, 9, 1, 12)
END = 49


def settings(text: Any = None, image: Any = None, **changes: Any) -> Hf:
    config = {
        **CONFIG,
        "text_config": {**CONFIG["text_config"], **(text or {})},
        "vision_config": {**CONFIG["vision_config"], **(image or {})},
    }
    return Hf(config=config, **changes)


def info_of(lab: Any, **changes: Any) -> Any:
    return lab.info("image-text", **{"image": 16, "window": 14, **changes})


def module_of(lab: Any, **changes: Any) -> Any:
    return lab.model(settings(**changes), info_of(lab)).module


def library() -> Any:
    """The library's own, with weights that are far from each other."""
    values = {name: dict(value) if isinstance(value, dict) else value for name, value in CONFIG.items()}
    values.pop("model_type")
    values["text_config"] |= {
        "vocab_size": 50,
        "max_position_embeddings": 15,
        "eos_token_id": END,
        "bos_token_id": 0,
    }
    values["vision_config"] |= {"image_size": 16}
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(**values))
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn_like(each))
    return model.eval()


def rows_of(seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """Rows for our task, and what the library is given: texts that end with their end, images that are normalised."""
    draws = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, END, (4, 15), generator=draws)
    images = torch.randint(0, 256, (4, 3, 16, 16), generator=draws, dtype=torch.uint8)
    for row, length in enumerate(LENGTHS):
        tokens[row, length - 1] = END
    rows = [
        {"tokens": each[:length].tolist(), "image": image.numpy()}
        for each, length, image in zip(tokens, LENGTHS, images, strict=True)
    ]
    # With the library's own processor's constants.
    mean = torch.tensor(transformers.image_utils.OPENAI_CLIP_MEAN).view(3, 1, 1)
    std = torch.tensor(transformers.image_utils.OPENAI_CLIP_STD).view(3, 1, 1)
    mask = (torch.arange(15) < torch.tensor(LENGTHS)[:, None]).long()
    pixels = (images / 255 - mean) / std
    return rows, {"input_ids": tokens * mask, "attention_mask": mask, "pixel_values": pixels}


def agree(ours: Any, theirs: Any) -> None:
    task = ImagePairing(
        0.07, 100, "mrr", transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD
    )
    rows, given = rows_of()
    batch = task.batch(rows)
    with torch.no_grad():
        outputs = ours(**task.inputs(batch))
        reference = theirs(**given, return_loss=True)
        unit = torch.nn.functional.normalize(outputs.hidden, dim=-1)
        logits = unit[:, 0] @ unit[:, 1].T * outputs.head
        (term,) = task.loss(outputs, batch)
    assert reference.logits_per_text.std() > 0.1
    assert (logits - reference.logits_per_text).abs().max() < 1e-5
    assert float(term.sum) / 4 == pytest.approx(float(reference.loss), abs=1e-5)


def take(ours: Any, theirs: Any) -> None:
    """Give our module the library's weights. The scale has no dimension there, and one element here."""
    weights = theirs.state_dict()
    ours.model.load_state_dict({**weights, "logit_scale": weights["logit_scale"].view(1)}, strict=True)


def test_a_model_from_a_configuration_gives_what_the_library_gives(lab: Any) -> None:
    ours, theirs = module_of(lab), library()
    take(ours, theirs)
    agree(ours, theirs)


def test_a_model_from_a_folder_gives_what_the_library_gives(lab: Any, tmp_path: Path) -> None:
    theirs = library()
    theirs.save_pretrained(tmp_path / "saved")
    ours = lab.model(Hf(folder=tmp_path / "saved"), info_of(lab)).module
    for name, weight in theirs.named_parameters():
        assert torch.equal(ours.model.get_parameter(name).view(weight.shape), weight), name
    agree(ours, theirs)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_ways_to_compute_attention_give_what_the_library_gives(lab: Any, attention: Any) -> None:
    ours, theirs = module_of(lab, attention=attention), library()
    assert ours.model.text_model.config._attn_implementation == attention
    take(ours, theirs)
    agree(ours, theirs)


def test_the_scale_is_at_most_100(lab: Any) -> None:
    ours = module_of(lab)
    _, given = rows_of()
    with torch.no_grad():
        ours.model.logit_scale.fill_(9.0)
        found = ours(tokens=given["input_ids"], lengths=torch.tensor(LENGTHS), image=given["pixel_values"])
    assert float(found.head) == 100.0
    assert found.hidden.shape == (4, 2, 24)


def test_first_values_are_distributed_as_the_library_has_them(lab: Any) -> None:
    ours = module_of(lab)
    torch.manual_seed(1)
    theirs = transformers.CLIPModel(ours.model.config)
    for name, buffer in theirs.named_buffers():
        assert torch.equal(dict(ours.model.named_buffers())[name], buffer), name
    for name, parameter in theirs.named_parameters():
        wanted = parameter.detach()
        mine = ours.model.get_parameter(name).detach()
        if wanted.numel() == 1 or float(wanted.std()) == 0:
            assert torch.equal(mine.view(wanted.shape), wanted), name
        else:
            assert float(mine.std() / wanted.std()) == pytest.approx(1, abs=7 / mine.numel() ** 0.5), name
    assert float(ours.model.logit_scale.detach()) == pytest.approx(2.6592)


def test_vocabulary_positions_and_images_come_from_the_data_unless_they_are_given(lab: Any) -> None:
    config = module_of(lab).model.config
    assert (config.text_config.vocab_size, config.text_config.max_position_embeddings) == (50, 15)
    assert config.vision_config.image_size == 16
    given = settings({"vocab_size": 70, "max_position_embeddings": 20}, {"image_size": 16}, dropout=0.25)
    config = lab.structure(given, info_of(lab)).module.model.config
    assert (config.text_config.vocab_size, config.text_config.max_position_embeddings) == (70, 20)
    assert config.text_config.attention_dropout == config.vision_config.attention_dropout == 0.25


def test_the_anatomy_names_every_parameter_and_no_layout_cuts_between_the_towers(lab: Any) -> None:
    made = lab.structure(settings(), info_of(lab))
    named = dict(made.module.named_parameters())
    assert made.anatomy.parameters.keys() == named.keys()
    assert made.anatomy.blocks == ()
    assert made.anatomy.embedding == "model.text_model.embeddings.token_embedding"
    assert not made.anatomy.parameters["model.logit_scale"].decay
    places = made.anatomy.parameters["model.vision_model.embeddings.position_embedding.weight"]
    assert places.tags >= {"embedding", "positions"}
    assert settings().estimate(Facts(task="image-text")) == Facts(task="image-text")


def test_blocks_of_both_towers_are_computed_again(lab: Any) -> None:
    one, again = module_of(lab).train(), module_of(lab, checkpointing="full").train()
    _, given = rows_of()
    for module in (one, again):
        module(
            tokens=given["input_ids"], lengths=torch.tensor(LENGTHS), image=given["pixel_values"]
        ).hidden.sum().backward()
    for name, weight in one.named_parameters():
        other = again.get_parameter(name).grad
        # The scale has no part in the vectors.
        assert (weight.grad is None) == (other is None) == (name == "model.logit_scale")
        if weight.grad is not None:
            assert torch.allclose(weight.grad, other, atol=1e-6), name


@pytest.mark.parametrize(
    ("changes", "info", "wrong"),
    [
        ({}, {"task": "pairs"}, r"HFM006 a model of the type 'clip' has no head for the task 'pairs'"),
        ({}, {"task": "lm"}, r"HFM006.*\n?.*it is for the task 'image-text'"),
        ({}, {"image": None}, r"HFM011 the model reads images of 224 pixels a side, and the data has none"),
        ({"image": {"image_size": 32}}, {}, r"HFM011 the model reads images of 32 .*the data's have 16"),
        ({"text": {"vocab_size": 20}}, {}, "HFM004"),
        ({"text": {"max_position_embeddings": 9}}, {}, "HFM005 the model has 9 positions"),
        ({"text": {"hiden_size": 9}}, {}, r"HFM003 the configuration of 'clip\.text_config' has no value"),
        ({"image": {"patch": 9}}, {}, r"HFM003 the configuration of 'clip\.vision_config'.*\n?.*patch_size"),
        ({"text": {"num_attention_heads": 5}}, {}, "HFM003"),
    ],
)
def test_what_does_not_go_together_is_refused(lab: Any, changes: Any, info: Any, wrong: str) -> None:
    facts = {"image": 16, "window": 14, **info}
    with pytest.raises(PlanError, match=wrong):
        lab.structure(settings(**changes), lab.info(facts.pop("task", "image-text"), **facts))


def test_models_that_do_not_work_as_clip_does_are_refused(lab: Any) -> None:
    tower: dict[str, Any] = dict(TOWER)
    other = Hf(
        config={"model_type": "siglip", "text_config": tower, "vision_config": {**tower, "patch_size": 8}}
    )
    with pytest.raises(PlanError, match="HFM006 a model of the type 'siglip'"):
        lab.structure(other, info_of(lab))
    with pytest.raises(PlanError, match="HFM006 a model of the type 'bert'"):
        lab.structure(lab.settings("bert"), info_of(lab))
