"""First values: those of the library's rule, from (seed, name) alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from nlpkernel.engine.materialise import generator_for
from nlpkernel.errors import PluginError
from nlpkernel_hf.values import FirstValues

ALL = ("bert", "roberta", "gpt2", "llama", "mixtral", "t5")


@pytest.mark.parametrize("kind", ALL)
def test_every_value_is_distributed_as_the_library_has_it(lab: Any, kind: str) -> None:
    values = {"initializer_factor": 0.5} if kind == "t5" else {"initializer_range": 0.05}
    made = lab.model(lab.settings(kind, values), lab.info(lab.task(kind)))
    theirs = lab.library(kind, lab.task(kind), made.module, fresh=True, **values)
    buffers = dict(made.module.model.named_buffers())
    for name, buffer in theirs.named_buffers():
        assert torch.equal(buffers[name], buffer), name
    for name, ours in made.module.model.named_parameters():
        wanted, ours = theirs.get_parameter(name).detach(), ours.detach()
        assert abs(ours.mean() - wanted.mean()) < 6 * wanted.std() / ours.numel() ** 0.5 + 1e-7, name
        if wanted.std() == 0:
            assert torch.equal(ours, wanted), name
        else:
            # The spread of a spread of n values is about 1 / sqrt(2 n).
            assert float(ours.std() / wanted.std()) == pytest.approx(1, abs=6 / ours.numel() ** 0.5), name


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bert"])
def test_a_value_depends_on_seed_and_name_alone(lab: Any, kind: str) -> None:
    settings, info = lab.settings(kind), lab.info(lab.task(kind))
    one, other = lab.model(settings, info), lab.model(settings, info, seed=2)
    alone = lab.structure(settings, info)
    changed = 0
    for name, value in reversed(list(one.module.named_parameters())):
        # One tensor only, on a model without memory, whatever torch's own generator stands at.
        tensor = torch.empty(value.shape)
        torch.manual_seed(len(name))
        before = torch.get_rng_state()
        alone.initialise(name, tensor, generator_for(1, name))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(tensor, value), name
        changed += not torch.equal(tensor, other.module.get_parameter(name))
    assert changed > 8


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        },
    ],
)
def test_tables_of_rotation_are_the_librarys(lab: Any, scaling: dict[str, Any]) -> None:
    values = {"rope_parameters": {"rope_theta": 5000.0, **scaling}}
    ours = lab.model(lab.settings("llama", values), lab.info("lm")).module
    theirs = lab.library("llama", "lm", ours, **values)
    assert torch.equal(ours.model.model.rotary_emb.inv_freq, theirs.model.rotary_emb.inv_freq)
    assert float(ours.model.model.rotary_emb.inv_freq[0]) > 0


def test_every_entry_is_trained_unless_the_configuration_names_padding(lab: Any) -> None:
    for values, zero in (({}, False), ({"pad_token_id": 3}, True)):
        module = lab.model(lab.settings("bert", values), lab.info("mlm")).module
        module(tokens=torch.tensor([[3, 4, 0]]), lengths=torch.tensor([3])).logits.sum().backward()
        table = module.get_parameter("model.bert.embeddings.word_embeddings.weight")
        assert bool((table[3] == 0).all()) is zero
        assert float(table[0].detach().abs().sum()) > 0


def test_a_parameter_that_the_library_has_no_value_for_is_an_error() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", n_embd=8, n_layer=1, n_head=1))
        model.transformer.h[0].extra = torch.nn.Parameter(torch.empty(3))
    with pytest.raises(PluginError, match=r"HFM009 .*transformer\.h\.0\.extra"):
        FirstValues(model).fill("transformer.h.0.extra", torch.empty(3), torch.Generator())
