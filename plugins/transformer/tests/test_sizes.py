"""Parameter counts of all presets, and the estimates of `check` against the real model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.components import PRESETS
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_transformer.component import Gpt, Llama
from nlpkernel_transformer.module import Transformer
from nlpkernel_transformer.shape import Shape

EVERY = [(name, preset) for name, cls in (("gpt", Gpt), ("llama", Llama)) for preset in getattr(cls, PRESETS)]


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "preset", "vocabulary", "window", "number"),
    [
        ("gpt", "gpt2", 50257, 1024, 124_439_808),
        ("gpt", "gpt2-medium", 50257, 1024, 354_823_168),
        ("gpt", "gpt2-large", 50257, 1024, 774_030_080),
        ("gpt", "gpt2-xl", 50257, 1024, 1_557_611_200),
        ("llama", "1b", 128256, 8192, 1_235_814_400),
        ("llama", "8b", 128256, 8192, 8_030_261_248),
    ],
)
def test_published_models_have_their_published_number_of_parameters(
    structure: Any, name: str, preset: str, vocabulary: int, window: int, number: int
) -> None:
    model = structure(name, preset, vocabulary=vocabulary, window=window)
    assert _count(model.module) == number


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_the_estimate_names_the_parameters_of_the_real_model(
    component: Any, structure: Any, name: str, preset: str
) -> None:
    facts = component(name, preset).estimate(Facts(vocabulary=1000, window=96, micro=4))
    real = _count(structure(name, preset, vocabulary=1000, window=96).module)
    assert facts.parameters == facts.trainable == real
    assert facts.parameter_bytes == facts.gradient_bytes == 4 * real


@settings(max_examples=40, deadline=None)
@given(
    layers=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    half=st.integers(1, 4),
    hidden=st.none() | st.integers(1, 40),
    positions=st.sampled_from(["learned", "rotary"]),
    norm=st.sampled_from(["layer", "rms"]),
    activation=st.sampled_from(["gelu", "swiglu"]),
    bias=st.booleans(),
    tie=st.booleans(),
)
def test_the_number_of_parameters_follows_from_any_settings(
    component: Any, layers: int, kv_heads: int, group: int, half: int, **rest: Any
) -> None:
    heads = kv_heads * group
    made = component("gpt", layers=layers, heads=heads, kv_heads=kv_heads, width=heads * 2 * half, **rest)
    shape = made.shape(11, 7)
    with torch.device("meta"):
        assert _count(Transformer(shape)) == shape.parameters()


def _saved_bytes(module: torch.nn.Module, rows: int, window: int, vocabulary: int) -> int:
    """Bytes that a forward and its loss keep for the backward pass, each storage once, parameters not counted."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens = torch.randint(0, vocabulary, (rows, window))
    module(tokens)  # tables that are made once are there now
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = module(tokens)
        F.cross_entropy(outputs.logits.flatten(0, 1), tokens.flatten()).detach()
    tables = getattr(module, "rotary", None)
    for cosine_sine in tables._tables.values() if tables else ():
        for table in cosine_sine:
            kept.pop(table.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in kept.values())


#: The estimate may be off by so much, either way.
FACTOR = 1.15


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt", {}),
        ("gpt", {"bias": True}),
        ("gpt", {"attention": "eager"}),
        ("gpt", {"dropout": 0.1}),
        ("llama", {}),
        ("llama", {"norm": "layer"}),
        ("gpt", {"positions": "rotary", "kv_heads": 1}),
    ],
)
def test_the_estimate_of_activations_is_within_15_percent_of_what_autograd_keeps(
    component: Any, make: Any, name: str, changes: dict[str, Any]
) -> None:
    rows, window, vocabulary = 3, 48, 65
    guess = component(name, **changes).estimate(Facts(vocabulary=vocabulary, window=window, micro=rows))
    real = _saved_bytes(
        make(name, vocabulary=vocabulary, window=window, **changes).module, rows, window, vocabulary
    )
    assert real / FACTOR <= guess.activation_bytes <= real * FACTOR


def test_recomputed_blocks_keep_only_their_input(component: Any, make: Any) -> None:
    rows, window, vocabulary = 3, 48, 65

    def both(checkpointing: Any) -> tuple[int, int]:
        facts = Facts(vocabulary=vocabulary, window=window, micro=rows)
        guess = component("gpt", checkpointing=checkpointing).estimate(facts).activation_bytes
        module = make("gpt", vocabulary=vocabulary, window=window, checkpointing=checkpointing).module
        return guess, _saved_bytes(module, rows, window, vocabulary)

    guesses, measured = zip(*(both(mode) for mode in ("none", 2, "full")), strict=True)
    assert measured[0] > 1.5 * measured[1] > 2 * measured[2]
    assert guesses[0] > guesses[1] > guesses[2]
    # The recomputed block comes on top of what the forward keeps.
    for guess, real in zip(guesses[1:], measured[1:], strict=True):
        assert real < guess


def test_no_size_is_estimated_while_the_vocabulary_is_unknown(component: Any) -> None:
    nano = component("gpt")
    cuts = math.gcd(nano.heads, 4 * nano.width)
    assert nano.estimate(Facts(window=64)) == Facts(window=64, blocks=nano.layers, cuts=cuts)


@pytest.mark.parametrize(
    ("changes", "cuts"),
    [
        ({"heads": 8, "kv_heads": 8, "width": 64}, 8),
        ({"heads": 8, "kv_heads": 2, "width": 64}, 2),
        ({"heads": 4, "width": 32, "hidden": 66}, 2),
    ],
)
def test_layers_are_cut_in_whole_heads(component: Any, changes: dict[str, int], cuts: int) -> None:
    assert component("llama", **changes).estimate(Facts()).cuts == cuts


def test_a_rotary_model_without_a_window_is_estimated_from_its_context(component: Any) -> None:
    facts = component("llama", context=128).estimate(Facts(vocabulary=100))
    assert facts.parameters is not None
    assert facts.activation_bytes == Shape.activation_bytes(component("llama").shape(100, 128), 1, 128)


def test_a_context_that_is_too_short_is_noted(component: Any) -> None:
    facts = component("gpt", context=16).estimate(Facts(vocabulary=100, window=64))
    assert facts.parameters is None
    assert "16" in facts.notes[0]
