from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nlpkernel.context import Run
from nlpkernel.events import Notice
from nlpkernel.hookspecs.model import ParameterGroup
from nlpkernel.plan.train import Train
from nlpkernel_optim.schedules import Constant

torch.set_num_threads(1)

SHAPES = {"attn.weight": (6, 4), "mlp.weight": (5, 7), "attn.bias": (4,), "embed.weight": (9, 4)}
TAGS = {"attn.weight": "attention", "mlp.weight": "mlp", "attn.bias": "bias", "embed.weight": "embedding"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(name="test", folder=tmp_path, cache=tmp_path, train=Train())


@pytest.fixture
def notices(run: Run) -> list[Notice]:
    heard: list[Notice] = []
    run.bus.on(Notice, heard.append)
    return heard


@pytest.fixture
def make_groups() -> Callable[..., list[ParameterGroup]]:
    """Parameters of a small model, in three groups as an anatomy gives them."""

    def make(dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[ParameterGroup]:
        generator = torch.Generator().manual_seed(1)
        tensors = {
            name: torch.nn.Parameter(torch.randn(shape, generator=generator).to(device, dtype))
            for name, shape in SHAPES.items()
        }
        return [
            ParameterGroup(
                names=[name], tensors=[tensor], decay=tensor.ndim > 1, tags=frozenset({TAGS[name]})
            )
            for name, tensor in tensors.items()
        ]

    return make


@pytest.fixture
def make(run: Run) -> Callable[..., torch.optim.Optimizer]:
    """An optimizer from a component class and its settings."""

    def build(kind: type, groups: list[ParameterGroup], **settings: Any) -> torch.optim.Optimizer:
        settings = {"lr": 0.01, "schedule": Constant(), **settings}
        return run.ask(kind(**settings), "create_optimizer", run=run, groups=groups)

    return build


@pytest.fixture
def gradients() -> Callable[[torch.optim.Optimizer, int], None]:
    """Sets the gradients of step `number`: the same for each call with the same number."""

    def fill(optimizer: torch.optim.Optimizer, number: int) -> None:
        generator = torch.Generator().manual_seed(100 + number)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)

    return fill


@pytest.fixture
def bits() -> Callable[[torch.optim.Optimizer], Mapping[str, Tensor]]:
    """Copies of weights and state by path, as the engine saves them."""

    def copy(optimizer: torch.optim.Optimizer) -> Mapping[str, Tensor]:
        leaves: dict[str, Tensor] = {}
        for group in optimizer.param_groups:
            for name, parameter in zip(group["names"], group["params"], strict=True):
                leaves[f"model/{name}"] = parameter.detach().clone()
                for key, value in optimizer.state[parameter].items():
                    assert isinstance(value, Tensor)
                    leaves[f"optimizer/{name}/{key}"] = value.clone()
        return leaves

    return copy


@pytest.fixture
def same() -> Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], None]:
    """Asserts that two sets of leaves are equal bit by bit."""

    def check(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> None:
        assert left.keys() == right.keys()
        for path, value in left.items():
            other = right[path]
            assert value.dtype == other.dtype, path
            assert (
                value.numpy(force=True).tobytes() == other.numpy(force=True).tobytes()
                if (value.dtype != torch.bfloat16)
                else torch.equal(value.view(torch.int16), other.view(torch.int16))
            ), path

    return check


class _NoReads(TorchDispatchMode):
    """Fails where an operator gives a value of a tensor to the host."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        assert name not in {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "_to_cpu"}, (
            f"a read: {name}"
        )
        return function(*args, **(kwargs or {}))


@pytest.fixture
def no_reads() -> type[_NoReads]:
    return _NoReads
