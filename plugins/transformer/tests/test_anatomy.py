"""What the anatomy says of each parameter, that it is enough to cut the model, and the first values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.engine.materialise import generator_for

BOTH = pytest.mark.parametrize("name", ["gpt", "llama"])
TINY = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 17, "window": 12}


@BOTH
@pytest.mark.parametrize("bias", [True, False])
def test_every_parameter_is_described_and_nothing_else(structure: Any, name: str, bias: bool) -> None:
    model = structure(name, **TINY, bias=bias)
    assert set(model.anatomy.parameters) == {key for key, _ in model.module.named_parameters()}
    assert not dict(model.module.named_buffers())
    for key, parameter in model.module.named_parameters():
        assert parameter.is_meta
        facts = model.anatomy.parameters[key]
        assert facts.decay == (parameter.dim() >= 2), key
        assert ("bias" in facts.tags) == key.endswith("bias")


@BOTH
def test_the_anatomy_names_modules_that_exist_in_forward_order(structure: Any, name: str) -> None:
    model = structure(name, **TINY)
    blocks = [model.module.get_submodule(path) for path in model.anatomy.blocks]
    assert blocks == list(model.module.blocks)
    assert model.module.get_submodule(model.anatomy.embedding) is model.module.embedding
    assert model.module.get_submodule(model.anatomy.head) is model.module.head


@BOTH
@pytest.mark.parametrize("workers", [2, 4])
def test_a_block_cut_by_role_and_parts_adds_up_to_the_whole(make: Any, name: str, workers: int) -> None:
    kv_heads = 4 if workers == 4 else 2
    model = make(name, **TINY, kv_heads=kv_heads, bias=True)
    whole, facts = model.module.blocks[0], model.anatomy.parameters
    with torch.no_grad():
        for key, parameter in whole.named_parameters():
            if key.endswith("bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(len(key)))

    def share(worker: int) -> Any:
        block = copy.deepcopy(whole)
        for key, parameter in block.named_parameters():
            fact = facts[f"{model.anatomy.blocks[0]}.{key}"]
            value = parameter.data
            if fact.role == "column":
                parts = value.split(fact.parts or (len(value),))
                value = torch.cat([part.chunk(workers)[worker] for part in parts])
            elif fact.role == "row":
                value = value.chunk(workers, dim=1)[worker]
            elif key in ("attention.out.bias", "mlp.down.bias") and worker:
                value = torch.zeros_like(value)
            parameter.data = value
        return block

    x = torch.randn(2, 6, 32)
    rotation = model.module.rotary.at(0, 6, x.device) if model.module.rotary else None
    shares = [share(worker) for worker in range(workers)]
    mixed = sum(block.attention(x, rotation) for block in shares)
    torch.testing.assert_close(mixed, whole.attention(x, rotation), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(sum(block.mlp(x) for block in shares), whole.mlp(x), atol=1e-5, rtol=1e-4)


@BOTH
@settings(max_examples=10, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**40))
def test_first_values_follow_from_seed_and_name_in_any_order(
    structure: Any, make: Any, name: str, data: st.DataObject, seed: int
) -> None:
    expected = dict(make(name, seed=seed, **TINY).module.named_parameters())
    model = structure(name, **TINY)
    for key in data.draw(st.permutations(sorted(expected))):
        tensor = torch.full(expected[key].shape, torch.nan)
        model.initialise(key, tensor, generator_for(seed, key))
        assert torch.equal(tensor, expected[key])


@BOTH
def test_first_values_have_their_standard_deviations(make: Any, name: str) -> None:
    layers, std = 8, 0.05
    model = make(name, layers=layers, heads=4, width=128, vocabulary=500, window=64, bias=True, init_std=std)
    for key, parameter in model.module.state_dict().items():
        if key.endswith("bias"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), key
        elif parameter.dim() == 1:
            assert torch.equal(parameter, torch.ones_like(parameter)), key
        else:
            residual = key.endswith(("attention.out.weight", "mlp.down.weight"))
            wanted = std / (2 * layers) ** 0.5 if residual else std
            assert float(parameter.std()) == pytest.approx(wanted, rel=0.05), key
            assert abs(float(parameter.mean())) < wanted * 0.05, key


def test_an_unknown_name_is_not_filled(structure: Any) -> None:
    with pytest.raises(KeyError, match=r"blocks\.0\.adapter"):
        structure("gpt", **TINY).initialise("blocks.0.adapter", torch.empty(2, 2), torch.Generator())
