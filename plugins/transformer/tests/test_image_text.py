"""The model of images and texts: its towers, its sizes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.components import PRESETS
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.data import DataInfo
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_transformer.build import build
from nlpkernel_transformer.component import Encoder, EncoderDecoder, Gpt
from nlpkernel_transformer.image_component import ImageText

TINY: dict[str, Any] = {"layers": 2, "heads": 4, "width": 32, "patch": 4}


def component_of(preset: str = "tiny", **changes: Any) -> Any:
    return ImageText(**{"preset": preset, **getattr(ImageText, PRESETS)[preset], **changes})


def structure_of(window: int = 12, image: int = 16, vocabulary: int = 65, **changes: Any) -> Any:
    shape = component_of(**{**TINY, **changes}).shape(vocabulary, window - 1, image)
    with torch.device("meta"):
        return build(shape), shape


def model_of(seed: int = 0, **changes: Any) -> Any:
    model, _ = structure_of(**changes)
    allocate(model.module, torch.device("cpu"), torch.float32)
    fill(model, whole(model.module), seed)
    return model


def spread(module: Any) -> Any:
    """With values that are no constants anywhere."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return module.eval()


def tokens_of(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 65, (rows, width), generator=torch.Generator().manual_seed(seed))


def images_of(rows: int, side: int = 16, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 3, side, side, generator=torch.Generator().manual_seed(seed))


def info_of(**changes: Any) -> DataInfo:
    facts = {"task": "image-text", "image": 16, "vocabulary": 65, "window": 11, **changes}
    return DataInfo(fingerprint="", splits={}, **facts)


# -- what it computes


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    pool=st.sampled_from(["mean", "first", "max"]),
    positions=st.sampled_from(["learned", "rotary", "sinusoidal"]),
    attention=st.sampled_from(["sdpa", "eager"]),
    span=st.sampled_from([None, 4]),
)
def test_each_text_and_each_image_has_the_vector_that_it_has_alone(
    lengths: list[int], **changes: Any
) -> None:
    """And so padding changes nothing, nor the other tower."""
    module = spread(model_of(projection=24, image_layers=1, **changes).module)
    rows = len(lengths)
    tokens, images = tokens_of(rows, 12), images_of(rows)
    outputs = module(tokens, torch.tensor(lengths), image=images)
    assert outputs.hidden.shape == (rows, 2, 24)
    for row, length in enumerate(lengths):
        text = module(tokens[row : row + 1, :length], image=images_of(1, seed=9)).hidden[0, 0]
        image = module(tokens_of(1, 3, 7), image=images[row : row + 1]).hidden[0, 1]
        torch.testing.assert_close(outputs.hidden[row, 0], text, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(outputs.hidden[row, 1], image, atol=1e-5, rtol=1e-5)


def test_patches_are_projected_as_by_a_convolution_whose_stride_is_its_width() -> None:
    module = spread(model_of().module)
    patches, images = module.patches, images_of(2)
    weight = patches.project.weight.view(32, 3, 4, 4)
    wanted = (
        torch.nn.functional.conv2d(images, weight, patches.project.bias, stride=4).flatten(2).transpose(1, 2)
    )
    found = patches(images)
    assert found.shape == (2, 17, 32)
    torch.testing.assert_close(found[:, 1:], wanted + patches.positions[1:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[:, 0], (patches.first + patches.positions[0]).expand(2, -1))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_image_tower_is_the_vision_transformer_of_transformers(attention: str) -> None:
    vit = pytest.importorskip("transformers.models.vit")
    config = vit.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        layer_norm_eps=1e-5,
        image_size=16,
        patch_size=4,
        attn_implementation="eager",
    )
    other = spread(vit.ViTModel(config, add_pooling_layer=False))
    module = spread(model_of(attention=attention).module)
    theirs = other.state_dict()
    layers = sorted(
        {name.rpartition(".layernorm_before")[0] for name in theirs if "layernorm_before" in name}
    )
    mine = {
        "patches.project.weight": theirs["embeddings.patch_embeddings.projection.weight"].flatten(1),
        "patches.project.bias": theirs["embeddings.patch_embeddings.projection.bias"],
        "patches.first": theirs["embeddings.cls_token"].flatten(),
        "patches.positions": theirs["embeddings.position_embeddings"][0],
    }
    for part in ("weight", "bias"):
        mine[f"image_norm.{part}"] = theirs[f"layernorm.{part}"]
        for number, layer in enumerate(layers):
            inside = {
                name.removeprefix(f"{layer}."): value for name, value in theirs.items() if layer in name
            }
            block = f"image_blocks.{number}"

            def pick(*ends: str, inside: Any = inside, part: str = part) -> Any:
                return next(
                    value
                    for name, value in inside.items()
                    if name.endswith(tuple(f"{end}.{part}" for end in ends))
                )

            mine[f"{block}.attention_norm.{part}"] = pick("layernorm_before")
            mine[f"{block}.mlp_norm.{part}"] = pick("layernorm_after")
            mine[f"{block}.attention.qkv.{part}"] = torch.cat(
                [pick("query", "q_proj"), pick("key", "k_proj"), pick("value", "v_proj")]
            )
            mine[f"{block}.attention.out.{part}"] = pick("attention.output.dense", "o_proj", "out_proj")
            mine[f"{block}.mlp.up.{part}"] = pick("intermediate.dense", "fc1")
            mine[f"{block}.mlp.down.{part}"] = next(
                value
                for name, value in inside.items()
                if name.endswith((f"fc2.{part}",)) or name == f"output.dense.{part}"
            )
    named = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in mine.items():
            named[name].copy_(value)
    images = images_of(3)
    wanted = module.image_projection(other(pixel_values=images).last_hidden_state[:, 0])
    found = module(tokens_of(3, 5), image=images).hidden[:, 1]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_the_scale_begins_at_that_of_clip_and_is_at_most_100() -> None:
    module = model_of().module
    given = {"tokens": tokens_of(1, 4), "image": images_of(1)}
    with torch.no_grad():
        assert float(module(**given).head) == pytest.approx(1 / 0.07)
        module.scale.weight.fill_(9.0)
        assert module(**given).head.shape == ()
        assert float(module(**given).head) == 100.0


@pytest.mark.parametrize("checkpointing", ["full", 2])
def test_blocks_that_are_computed_again_have_the_same_gradients(checkpointing: Any) -> None:
    gradients = []
    for again in ("none", checkpointing):
        module = model_of(dropout=0.5, checkpointing=again).module.train()
        torch.manual_seed(3)
        outputs = module(tokens_of(2, 7), torch.tensor([7, 3]), image=images_of(2))
        (outputs.hidden.sum() * outputs.head).backward()
        gradients.append({name: each.grad for name, each in module.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name
        assert gradient.abs().sum() > 0, name


def test_what_does_not_fit_is_refused() -> None:
    module = model_of().module
    with pytest.raises(ValueError, match="13 positions"):
        module(tokens_of(1, 13), image=images_of(1))
    with pytest.raises(
        ValueError, match=r"images of \[3, 20, 20\] values are not this model's \[3, 16, 16\]"
    ):
        module(tokens_of(1, 3), image=images_of(1, 20))


# -- what it consists of


@pytest.mark.parametrize("bias", [True, False])
def test_the_anatomy_names_everything_in_the_order_of_the_forward_pass(bias: bool) -> None:
    model, _ = structure_of(bias=bias, image_layers=3)
    named = dict(model.module.named_parameters())
    assert model.anatomy.parameters.keys() == named.keys()
    assert model.anatomy.blocks == (
        *(f"blocks.{n}" for n in range(2)),
        *(f"image_blocks.{n}" for n in range(3)),
    )
    assert (model.anatomy.embedding, model.anatomy.head, model.anatomy.ties) == ("embedding", None, ())
    order = list(dict.fromkeys(name.partition(".")[0] for name in named))
    assert order == [
        "embedding",
        "positions",
        "patches",
        "blocks",
        "norm",
        "image_blocks",
        "image_norm",
        "text_projection",
        "image_projection",
        "scale",
    ]
    facts = model.anatomy.parameters
    without = {name for name, each in facts.items() if not each.decay}
    assert without == {name for name, each in named.items() if each.dim() < 2}
    assert facts["patches.positions"].tags == {"image", "positions"}
    assert facts["image_blocks.0.attention.qkv.weight"].parts == (32, 32, 32)


def test_first_values_follow_from_seed_and_name_and_are_as_wide_as_they_should_be() -> None:
    one, again, other = (dict(model_of(seed, width=64).module.named_parameters()) for seed in (0, 0, 1))
    for name, value in one.items():
        assert torch.equal(value, again[name]), name
        flat = "bias" in name or "norm" in name or name == "scale.weight"
        assert torch.equal(value, other[name]) == flat, name
    stds = {name: float(one[name].detach().std()) for name in one if one[name].dim() > 1}
    assert stds["patches.project.weight"] == pytest.approx(0.02, rel=0.1)
    assert stds["patches.positions"] == pytest.approx(64**-0.5, rel=0.1)
    for name in ("text_projection.weight", "image_projection.weight"):
        assert stds[name] == pytest.approx(64**-0.5, rel=0.1)
    # What writes into a tower's stream is narrower by the blocks of that tower.
    deep = dict(model_of(width=64, image_layers=8).module.named_parameters())
    assert float(deep["image_blocks.0.mlp.down.weight"].detach().std()) == pytest.approx(0.02 / 4, rel=0.1)
    assert float(deep["blocks.0.mlp.down.weight"].detach().std()) == pytest.approx(0.02 / 2, rel=0.1)


@settings(max_examples=30, deadline=None)
@given(
    layers=st.integers(1, 3),
    image_layers=st.none() | st.integers(1, 3),
    heads=st.integers(1, 3),
    half=st.integers(1, 4),
    hidden=st.none() | st.integers(1, 40),
    projection=st.none() | st.integers(1, 40),
    along=st.integers(1, 3),
    patch=st.integers(1, 4),
    positions=st.sampled_from(["learned", "rotary", "sinusoidal"]),
    norm=st.sampled_from(["layer", "rms"]),
    activation=st.sampled_from(["gelu", "swiglu"]),
    bias=st.booleans(),
)
def test_the_number_of_parameters_follows_from_any_settings(
    heads: int, half: int, along: int, patch: int, **rest: Any
) -> None:
    model, shape = structure_of(image=along * patch, heads=heads, width=heads * 2 * half, patch=patch, **rest)
    assert sum(each.numel() for each in model.module.parameters()) == shape.parameters()


@pytest.mark.parametrize("preset", getattr(ImageText, PRESETS))
def test_the_estimate_names_the_parameters_of_the_real_model(preset: str) -> None:
    facts = Facts(vocabulary=1000, window=31, image=32, task="image-text", micro=4)
    found = component_of(preset).estimate(facts)
    with torch.device("meta"):
        real = component_of(preset).create_model(info_of(vocabulary=1000, window=31, image=32)).module
    assert found.parameters == found.trainable == sum(each.numel() for each in real.parameters())
    assert found.parameter_bytes == 4 * found.parameters
    assert found.blocks == 2 * component_of(preset).layers


@pytest.mark.parametrize(
    "changes", [{}, {"attention": "eager"}, {"checkpointing": "full"}, {"image_layers": 4}]
)
def test_the_estimate_of_activations_is_within_15_percent_of_what_autograd_keeps(
    changes: dict[str, Any],
) -> None:
    rows, window = 3, 24
    facts = Facts(vocabulary=65, window=window - 1, image=16, micro=rows, task="image-text")
    estimate = component_of(**TINY, **changes).estimate(facts).activation_bytes
    module = model_of(window=window, **changes).module
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(tokens_of(rows, window), torch.tensor([24, 9, 2]), image=images_of(rows)).hidden.logsumexp(
            -1
        ).sum()
    real = sum(storage.nbytes() for storage in kept.values())
    if changes.get("checkpointing"):
        # One block that is computed again is alive beside what is kept.
        shape = structure_of(window=window)[1]
        blocks = shape._block_floats(window) * window, shape.tower()._block_floats(17) * 17
        real += 4 * rows * max(blocks)
    assert real / 1.15 <= estimate <= real * 1.15


# -- what it goes with


def test_tasks_and_data_of_others_are_refused() -> None:
    with pytest.raises(PlanError, match=r"TRF006 .* no head for the task 'pairs', only for 'image-text'"):
        component_of().create_model(info_of(task="pairs"))
    with pytest.raises(PlanError, match="TRF007 the rows of the data have no images"):
        component_of().create_model(info_of(image=None))
    with pytest.raises(PlanError, match="TRF007 images of 20 pixels a side do not divide into patches of 8"):
        component_of().create_model(info_of(image=20))
    with pytest.raises(PlanError, match="TRF001"):
        component_of(context=5).create_model(info_of())
    note = component_of().estimate(Facts(task="lm", vocabulary=9, window=9, image=16)).notes[0]
    assert "will stop" in note


@pytest.mark.parametrize("other", [Gpt, Encoder, EncoderDecoder])
def test_other_models_name_this_one_where_the_task_is_its(other: Any) -> None:
    made = other(**{"preset": "nano", **getattr(other, PRESETS)["nano"]})
    with pytest.raises(PlanError, match=r'TRF006 (.|\n)*`?use = "?`?\s*"?image-text"'):
        made.create_model(info_of())


def test_a_patch_that_images_do_not_divide_into_is_told_by_check() -> None:
    assert component_of().misfits(Facts(image=24)) == component_of().misfits(Facts()) == []
    ((name, why),) = component_of().misfits(Facts(image=20))
    assert (name, why) == ("patch", "images of 20 pixels a side do not divide into patches of 8")
    unknown = component_of().estimate(Facts(vocabulary=50, window=9))
    assert (unknown.parameters, unknown.vocabulary, unknown.blocks) == (None, 50, 4)


def test_checkpoints_of_more_blocks_than_a_tower_has_are_refused() -> None:
    complaints = list(component_of(layers=4, image_layers=2, checkpointing=3).check_settings())
    assert complaints == [("checkpointing", "checkpointing is 3, and the image tower has 2 blocks")]
    assert not list(component_of(layers=4, image_layers=2, checkpointing=2).check_settings())
