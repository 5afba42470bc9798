"""A model cut into stages computes what one process computes, and one that cannot be cut is refused."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nlpkernel.errors import PlanError, TrainingError
from nlpkernel.hookspecs.model import Anatomy, ParameterFacts
from nlpkernel_torchdist.gates import Gates
from nlpkernel_torchdist.pipeline import Pipeline
from nlpkernel_torchdist.stages import divide, lengths
from nlpkernel_torchdist.wire import WIDTH, describe, empty

PARTS = Path(__file__).parent / "parts"
CPU = torch.device("cpu")

#: Of losses and gradients from one process's, relative.
EQUAL = 2e-6


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"torchdist_parts_{name}", PARTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


spawn = _load("spawn").spawn


def _equal(results: list[dict[str, Any]], name: str) -> None:
    each = [result[name] for result in results]
    for measure in ("loss", "gradient", "evaluation"):
        assert max(one[measure] for one in each) <= EQUAL, (name, measure)
    # Every parameter is with somebody, and saved by one only.
    saved = [parameter for one in each for parameter in one["saves"]]
    assert sorted(set(saved)) == sorted(each[0]["all"]), name


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two workers found. In both, every pickling collective of torch raises."""
    return spawn("pipeline_cases.py", 2, tmp_path_factory.mktemp("two"))  # type: ignore[no-any-return]


def test_two_stages_find_what_one_process_finds(two: list[dict[str, Any]]) -> None:
    cases = [name for name, found in two[0].items() if isinstance(found, dict)]
    assert len(cases) >= 8
    for name in cases:
        _equal(two, name)
        saved = [parameter for one in two for parameter in one[name]["saves"]]
        assert len(saved) == len(set(saved)), name


def test_a_worker_has_the_parameters_of_its_stages_and_no_others(two: list[dict[str, Any]]) -> None:
    first, last = (one["gpipe"] for one in two)
    assert first["tied"] == last["tied"] == ["embedding.weight"]
    assert set(first["names"]) & set(last["names"]) == {"embedding.weight"}
    assert "embedding.weight" not in last["saves"]
    assert [one["blocks"] for one in (first, last)] == [["blocks.0", "blocks.1"], ["blocks.2", "blocks.3"]]
    apart = [one["interleaved"]["blocks"] for one in two]
    assert apart == [["blocks.0", "blocks.2"], ["blocks.1", "blocks.3"]]
    first, last = (one["1f1b"] for one in two)
    assert not set(first["names"]) & set(last["names"])


def test_dropout_repeats_itself(two: list[dict[str, Any]]) -> None:
    for one in two:
        first, second = one["dropout"]
        assert first == second


def test_a_loss_that_is_not_finite_is_known_on_every_stage(two: list[dict[str, Any]]) -> None:
    for one in two:
        assert all(one["not finite"])


def test_an_error_of_a_stage_is_raised_as_it_is(two: list[dict[str, Any]]) -> None:
    first, last = (one["ended"] for one in two)
    assert last == "ValueError: no loss today"
    assert first.startswith(("RuntimeError", "DistNetworkError"))


def test_stages_may_be_cut_along_tensor_too(tmp_path: Path) -> None:
    results = spawn("pipeline_cases.py", 4, tmp_path)
    _equal(results, "tensor")
    assert all(one["tensor"]["tied"] == ["embedding.weight"] for one in results)


@given(st.integers(1, 40), st.integers(1, 8))
def test_blocks_are_divided_evenly(blocks: int, stages: int) -> None:
    if blocks < stages:
        return
    found = lengths(blocks, stages)
    assert sum(found) == blocks
    assert max(found) - min(found) <= 1
    # The last stage, which has the head, has no more than any other.
    assert found[-1] == min(found)


@given(
    st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]),
    st.lists(st.integers(0, 3), max_size=8),
)
def test_a_description_gives_the_tensor_back(kind: torch.dtype, shape: list[int]) -> None:
    tensor = torch.empty(shape, dtype=kind)
    described = describe(tensor)
    assert len(described) == WIDTH
    made = empty(described, CPU)
    assert (made.shape, made.dtype) == (tensor.shape, tensor.dtype)


# -- Models of others, in one process: one stage at a time ------------------------------------------------------------


class Adding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.ones(3))

    def forward(self, hidden: Tensor, *others: Any, **named: Any) -> Any:
        return hidden + self.value


class Model(nn.Module):
    """Three blocks; `step` says how one is called."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Embedding(5, 3)
        self.layers = nn.ModuleList(Adding() for _ in range(3))
        self.end = nn.Linear(3, 2)

    def forward(self, tokens: Tensor) -> Any:
        hidden = self.start(tokens)
        for layer in self.layers:
            hidden = self.step(layer, hidden)
        return self.end(hidden)

    def step(self, layer: nn.Module, hidden: Tensor) -> Any:
        return layer(hidden)


def _anatomy(model: nn.Module, **changes: Any) -> Anatomy:
    given = {"blocks": ("layers.0", "layers.1", "layers.2"), "embedding": "start", "head": "end", **changes}
    return Anatomy(parameters={name: ParameterFacts() for name, _ in model.named_parameters()}, **given)


def _run(model: Model, stage: int, **options: Any) -> Any:
    """One stage of a model that has all of its parameters, in one process."""
    gates = Gates(divide(model, _anatomy(model), 3))
    gates.install(model)
    received = None if stage == 0 else torch.full((1, 4, 3), 7.0, requires_grad=True)
    return gates.run(model, stage, received, {"tokens": torch.zeros(1, 4, dtype=torch.long)}, **options)


def test_a_stage_runs_its_own_blocks_only() -> None:
    model = Model()
    assert torch.equal(_run(model, 0), (model.start.weight[0] + 1).expand(1, 4, 3))
    assert torch.equal(_run(Model(), 1), torch.full((1, 4, 3), 8.0))
    model = Model()
    assert torch.equal(_run(model, 2), model.end(torch.full((1, 4, 3), 8.0)))


class Twice(Model):
    def step(self, layer: nn.Module, hidden: Tensor) -> Any:
        return layer(layer(hidden))


class Never(Model):
    def step(self, layer: nn.Module, hidden: Tensor) -> Any:
        return hidden if layer is self.layers[2] else layer(hidden)


class Residual(Model):
    def step(self, layer: nn.Module, hidden: Tensor) -> Any:
        self.residual = getattr(self, "residual", self.start.weight[:1]) + 1
        return layer(hidden, (None, [self.residual]))


class Mapped(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layers[0].register_forward_hook(lambda layer, args, result: {"hidden": result})


class Unnamed(Model):
    def step(self, layer: nn.Module, hidden: Tensor) -> Any:
        return layer([hidden])


@pytest.mark.parametrize(
    ("kind", "stage", "words"),
    [
        (Twice, 0, "layers.0 is called out of the order of the anatomy, or more than once"),
        (Never, 1, "its forward does not call layers.2"),
        (Never, 2, "its forward does not call layers.2"),
        (Residual, 0, "layers.1 gets, beside the hidden state, a tensor that depends on parameters"),
        (Mapped, 0, "layers.0 returns dict"),
        (Unnamed, 1, "the first argument of layers.0 is no tensor"),
    ],
)
def test_a_model_whose_blocks_do_not_follow_each_other_is_refused(
    kind: type[Model], stage: int, words: str
) -> None:
    with pytest.raises(TrainingError, match=words) as raised:
        _run(kind(), stage)
    assert raised.value.problems[0].code == "TDI040"


def test_a_block_that_runs_by_itself_is_refused() -> None:
    model = Model()
    _run(model, 0)
    with pytest.raises(TrainingError, match=r"layers\.0 was called outside of a forward of its stage"):
        model.layers[0](torch.zeros(1, 4, 3))


class Late(Model):
    """Uses at its end what is registered at its beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.start.scale = nn.Parameter(torch.ones(3))

    def forward(self, tokens: Tensor) -> Any:
        return super().forward(tokens) * self.start.scale[:2]


class Biased(Model):
    """Gives its blocks something that is made of a parameter of the first stage, without gradient."""

    def step(self, layer: nn.Module, hidden: Tensor) -> Any:
        return layer(hidden, bias={"of": self.start.weight.detach()})


@pytest.mark.parametrize(
    ("kind", "stage", "words"),
    [
        (Late, 2, r"stage 2 needs a parameter that another stage has, maybe start\.weight, start\.scale"),
        (
            Biased,
            1,
            "layers.1 gets, beside the hidden state, a tensor that depends on parameters of another stage",
        ),
    ],
)
def test_a_stage_that_needs_what_another_has_is_refused_before_it_trains(
    kind: type[Model], stage: int, words: str
) -> None:
    with torch.device("meta"):
        model = kind()
    pipeline = Pipeline(stage, 3, None, CPU, "1f1b")
    pipeline.cut(model, _anatomy(model))
    model.to_empty(device=CPU)
    for each in model.parameters():
        nn.init.ones_(each)
    pipeline.settle(model)
    with torch.no_grad(), pytest.raises(TrainingError, match=words):
        pipeline._gates.run(
            model, stage, torch.zeros(1, 4, 3), {"tokens": torch.zeros(1, 4, dtype=torch.long)}, probing=True
        )


def test_what_others_own_takes_no_memory_and_is_no_part_of_the_module() -> None:
    with torch.device("meta"):
        model = Model()
    pipeline = Pipeline(1, 3, None, CPU, "1f1b")
    pipeline.cut(model, _anatomy(model))
    assert [name for name, _ in model.named_parameters()] == ["layers.1.value"]
    assert list(model.state_dict()) == ["layers.1.value"]
    assert (pipeline.owns("layers.1.value"), pipeline.owns("start.weight")) == (True, False)
    model.to_empty(device=CPU)
    pipeline.settle(model)
    stand_in = model.start.weight
    assert stand_in.shape == (5, 3)
    assert stand_in.untyped_storage().nbytes() == 4
    assert not stand_in.requires_grad


def test_buffers_outside_of_the_blocks_are_everywhere_and_saved_once() -> None:
    with torch.device("meta"):
        model = Model()
        model.register_buffer("table", torch.empty(2))
        model.layers[2].register_buffer("own", torch.empty(2))
    found = []
    for rank in range(3):
        pipeline = Pipeline(rank, 3, None, CPU, "1f1b")
        with torch.device("meta"):
            again = Model()
            again.register_buffer("table", torch.empty(2))
            again.layers[2].register_buffer("own", torch.empty(2))
        pipeline.cut(again, _anatomy(again))
        found.append(
            (
                [name for name, _ in again.named_buffers()],
                pipeline.saves("table"),
                pipeline.saves("layers.2.own"),
            )
        )
    assert found == [
        (["table"], True, False),
        (["table"], False, False),
        (["table", "layers.2.own"], False, True),
    ]


def test_a_model_with_fewer_blocks_than_stages_is_refused() -> None:
    with torch.device("meta"):
        model = Model()
    with pytest.raises(PlanError, match="3 blocks, and the pipeline 4 stages"):
        Pipeline(0, 2, None, CPU, "interleaved", 2).cut(model, _anatomy(model))


def test_micro_batches_of_two_shapes_are_refused_before_anything_is_sent() -> None:
    sys.path.insert(0, str(PARTS))
    try:
        cases = _load("pipeline_cases")
    finally:
        sys.path.remove(str(PARTS))
    made = cases.batches(2)
    made[1] = {name: each[:, :-1] for name, each in made[1].items()}
    work = cases.work_of(nn.Module(), made)
    pipeline = Pipeline(0, 2, None, CPU, "1f1b")
    rounds = [(0, {"loss": 1.0}), (1, {"loss": 1.0})]
    with pytest.raises(
        TrainingError, match="micro-batches 0 and 1 of a window differ: tokens 2x12, and tokens 2x11"
    ):
        pipeline.run_window(work, 0, rounds, {})
    work.backward = lambda loss, sums: None
    with pytest.raises(TrainingError, match="TDI042"):
        pipeline.run_window(work, 0, rounds, {})
