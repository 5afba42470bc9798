"""From structure to values: ties, initialisation by name, types of parameters, transforms in order."""

from __future__ import annotations

import attrs
import torch
from torch import nn

from nlpkernel.engine.group import trainable, whole
from nlpkernel.engine.materialise import allocate, fill, generator_for
from nlpkernel.engine.naming import Names, group_parameters
from nlpkernel.errors import PluginError
from nlpkernel.hookspecs.model import Anatomy, Model
from nlpkernel_sdk.notes import BOOKS
from nlpkernel_sdk.regression import build
from nlpkernel_sdk.tiny import TinyModel


class Tied(nn.Module):
    """An embedding and a head that are one tensor, a table that can be made again, and a count."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.empty(4), persistent=False)
        self.register_buffer("count", torch.empty((), dtype=torch.int64))


def normal(name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
    if tensor.is_floating_point():
        tensor.normal_(generator=generator)
    else:
        tensor.fill_(7)


def made(module: nn.Module, seed: int = 0, dtype: torch.dtype = torch.float32, order: int = 1) -> nn.Module:
    anatomy = Anatomy(blocks=(), embedding=None, head=None, parameters={})
    allocate(module, torch.device("cpu"), dtype)
    fill(Model(module=module, anatomy=anatomy, initialise=normal), list(whole(module))[::order], seed)
    return module


def on_meta(make):
    with torch.device("meta"):
        return make()


def test_ties_survive_allocation_and_initialisation():
    module = made(on_meta(Tied))
    assert module.head.weight is module.embedding.weight
    assert [name for name, _ in module.named_parameters()] == ["embedding.weight"]
    assert module.embedding.weight.device.type == "cpu"
    assert isinstance(module.embedding.weight, nn.Parameter)
    module.head(module.embedding(torch.tensor([1]))).sum().backward()
    assert module.embedding.weight.grad is not None
    assert "table" not in module.state_dict()
    assert int(module.count) == 7


def test_a_frozen_parameter_stays_frozen():
    module = on_meta(lambda: nn.Linear(2, 2))
    module.bias.requires_grad = False
    assert [p.requires_grad for p in made(module).parameters()] == [True, False]


def test_values_depend_on_seed_and_name_and_on_no_order():
    plain = made(on_meta(lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))))
    turned = made(on_meta(lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))), order=-1)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), turned.parameters(), strict=True))
    longer = made(on_meta(lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))))
    assert torch.equal(plain[1].weight, longer[1].weight)
    assert not torch.equal(plain[0].weight, plain[1].weight)
    other = made(on_meta(lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))), seed=1)
    assert not torch.equal(plain[0].weight, other[0].weight)


def test_values_of_another_type_are_the_float32_ones_rounded():
    full, half = made(on_meta(Tied)), made(on_meta(Tied), dtype=torch.bfloat16)
    assert half.embedding.weight.dtype == torch.bfloat16
    assert half.count.dtype == torch.int64
    assert half.table.dtype == torch.float32, "a table is no weight"
    assert torch.equal(half.embedding.weight, full.embedding.weight.to(torch.bfloat16))


def test_a_generator_is_keyed_by_the_whole_name():
    drawn = {
        (seed, name): torch.rand((), generator=generator_for(seed, name)).item()
        for seed in (0, 1, 2**63 - 1)
        for name in ("a.weight", "a.bias", "b.weight", "1/a")
    }
    assert len(set(drawn.values())) == len(drawn)


def test_a_run_initialises_by_the_seed_of_the_plan(bench):
    def weights(seed, name):
        train = {"steps": 1, "seed": seed}
        return bench.run(name=name, train=train, model={"hidden": 4}, optimizer={"lr": 1e-30}).weights

    first, same, other = weights(1, "a"), weights(1, "b"), weights(2, "c")
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["body.weight"], other["body.weight"])


def test_parameters_have_the_type_of_the_precision(bench):
    ran = bench.run(
        precision=bench.use("Half"),
        model={"hidden": 4, "value": 0.1},
        data=bench.use("HalfData"),
        train={"steps": 2},
    )
    assert ran.error is None
    assert {tensor.dtype for tensor in ran.weights.values()} == {torch.bfloat16}


def test_the_types_of_a_precision_hold_in_training_and_evaluation(bench):
    """Its autocast is entered for every forward: 4 of two steps, and 3 of the evaluation of 10 rows."""
    bench.run(precision=bench.use("Half"), data=bench.use("HalfData"), train={"steps": 2, "micro": 4})
    assert len(BOOKS["autocast"]) == 4 + 3


def test_a_model_that_was_made_asleep_is_woken(bench):
    """Dropout would do nothing in evaluation mode."""
    plan = {"train": {"steps": 2}, "optimizer": {"lr": 1e-30}}
    asleep = bench.run(name="asleep", model=bench.use("Asleep"), **plan)
    awake = bench.run(model={"hidden": 16, "dropout": 0.9}, **plan)
    assert asleep.losses == awake.losses


def test_transforms_are_threaded_in_the_order_of_the_plan(bench):
    def transformed(*factors, name):
        transform = [bench.use("Grow", by=by, tag=f"by-{by}") for by in factors]
        model = {"transform": transform, "value": 1.0}
        return bench.run(name=name, model=model, train={"steps": 1}, optimizer={"lr": 1e-30})

    ran = transformed(2, 3, name="a")
    assert BOOKS["grow"] == [(2, "meta"), (3, "meta")]
    # (1 + 2) * 3 and (1 * 3) + ... differ: the second sees what the first made.
    assert float(ran.weights["factor"]) == (1 + 2) * 10 + 3
    turned = transformed(3, 2, name="b")
    assert float(turned.weights["factor"]) == (1 + 3) * 10 + 2


def test_what_a_transform_adds_must_be_described(bench):
    transform = [bench.use("Grow", by=2, tag="")]
    ran = bench.run(model={"transform": transform})
    assert isinstance(ran.error, PluginError)
    assert ran.error.problems[0].code == "NK061"
    assert "factor" in str(ran.error)


def test_groups_of_parameters_follow_decay_and_tags():
    with torch.device("meta"):
        model = build(TinyModel(hidden=4), 3)
    facts = dict(model.anatomy.parameters)
    facts["head.weight"] = attrs.evolve(facts["head.weight"], tags=frozenset({"head"}))
    model = attrs.evolve(model, anatomy=attrs.evolve(model.anatomy, parameters=facts))
    trained = trainable(whole(model.module))
    groups = group_parameters(model.anatomy, Names.of(model.module).trained, trained)
    assert [(group.names, group.decay, group.tags) for group in groups] == [
        (["body.weight"], True, frozenset()),
        (["body.bias", "head.bias"], False, frozenset()),
        (["head.weight"], True, frozenset({"head"})),
    ]
    assert groups[1].tensors[1] is model.module.head.bias
