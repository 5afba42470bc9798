"""A model cut over the tensor axis computes what one process computes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nlpkernel.errors import PlanError, PluginError
from nlpkernel.hookspecs.model import Anatomy, Outputs, ParameterFacts, Role
from nlpkernel.state import Sharded, Spread
from nlpkernel_torchdist.tensor import _Cut, _pieces, parallelize, whole_outputs


def _load(name: str) -> ModuleType:
    path = Path(__file__).parent / "parts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"torchdist_parts_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


spawn = _load("spawn").spawn

#: Of losses and gradients from one process's, relative.
EQUAL = 2e-6


def _check(results: list[dict[str, Any]]) -> None:
    for name in results[0]:
        if name == "dropout":
            continue
        each = [result[name] for result in results]
        assert max(one["loss"] for one in each) <= EQUAL, name
        assert max(one["gradient"] for one in each) <= EQUAL, name
        assert len({one["evaluated"] for one in each}) == 1, name
        assert "blocks.0.attention.qkv.weight" in each[0]["cut"], name


def test_two_workers_find_the_loss_and_gradients_of_one(tmp_path: Path) -> None:
    results = spawn("tensor_cases.py", 2, tmp_path)
    _check(results)
    # The same seed gives the same masks on both, and both have drawn as many numbers.
    first, *others = [result["dropout"] for result in results]
    assert first[:2] == first[2:]
    assert others == [first]


def test_four_workers_find_the_loss_and_gradients_of_one(tmp_path: Path) -> None:
    _check(spawn("tensor_cases.py", 4, tmp_path))


@given(
    parts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    size=st.integers(1, 4),
    dimension=st.integers(0, 1),
)
def test_the_pieces_of_all_workers_are_the_whole(parts: list[int], size: int, dimension: int) -> None:
    lengths = tuple(part * size for part in parts)
    shape = (sum(lengths), 3) if dimension == 0 else (3, sum(lengths))
    whole = torch.arange(shape[0] * shape[1]).view(shape)
    cut = _Cut(shape, dimension, lengths)
    found = []
    for rank in range(size):
        kind = _pieces(cut, rank, size)
        mine = Spread(shape, [(Sharded.whole(shape).pieces[0], whole)]).take(kind)
        # Its share of each part, one after the other.
        wanted = [part.chunk(size, dimension)[rank] for part in whole.split(lengths, dimension)]
        assert torch.equal(mine, torch.cat(wanted, dimension))
        found += [(piece, mine) for piece in kind.pieces]
    assert torch.equal(Spread(shape, found).whole(), whole)


# -- Refusals, before anything is cut ---------------------------------------------------------------------------------


class Mesh:
    """As much of a mesh as the refusals need."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size(self) -> int:
        return self._size

    def get_local_rank(self) -> int:
        return 0


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4)
        self.qkv = nn.Linear(4, 12)
        self.out = nn.Linear(4, 4, bias=False)
        self.norm = nn.LayerNorm(4)


def _refused(
    roles: dict[str, ParameterFacts | Role | None], size: int = 2, module: nn.Module | None = None
) -> str:
    """What is said of a model with these facts, of which nothing was cut."""
    if module is None:
        with torch.device("meta"):
            module = Layers()
    facts = {name: ParameterFacts() for name, _ in module.named_parameters()}
    for name, each in roles.items():
        if each is None:
            del facts[name]
        else:
            facts[name] = each if isinstance(each, ParameterFacts) else ParameterFacts(role=each)
    mesh: Any = Mesh(size)
    before = dict(module.named_parameters())
    with pytest.raises((PlanError, PluginError)) as raised:
        parallelize(module, Anatomy(blocks=(), embedding=None, head=None, parameters=facts), mesh)
    assert dict(module.named_parameters()) == before
    return str(raised.value)


def test_what_does_not_divide_is_told_all_at_once() -> None:
    parts = ParameterFacts(role="column", parts=(6, 3, 3))
    told = _refused({"qkv.weight": parts, "qkv.bias": parts, "out.weight": "row", "table.weight": "vocab"}, 3)
    assert "TDI005 out.weight has 4 columns, which do not divide by 3" in told
    assert "qkv" not in told
    told = _refused({"qkv.weight": parts, "qkv.bias": parts, "table.weight": "vocab"}, 4)
    assert "qkv.weight has 6 + 3 + 3 rows, which do not divide by 4" in told
    assert "qkv.bias has 6 + 3 + 3 rows" in told
    # 6 rows in chunks of one size are 2, 2, 2 and nothing.
    assert "table.weight has 6 rows, and 4 workers cannot each have some" in told
    wrong = ParameterFacts(role="column", parts=(6, 4))
    assert "12 rows, and its parts in the anatomy are 6 + 4" in _refused(
        {"qkv.weight": wrong, "qkv.bias": wrong}
    )


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        (
            {"qkv.weight": "expert"},
            "Linear cannot be cut by these roles: qkv.weight (expert), qkv.bias (replicate)",
        ),
        ({"qkv.weight": "column"}, "qkv.weight (column), qkv.bias (replicate)"),
        ({"norm.weight": "column"}, "LayerNorm cannot be cut by these roles: norm.weight (column)"),
        ({"table.weight": "row"}, "Embedding cannot be cut by these roles: table.weight (row)"),
        ({"out.weight": None}, "anatomy says nothing of out.weight"),
    ],
)
def test_a_role_that_the_layer_cannot_have_is_refused(roles: dict[str, Any], words: str) -> None:
    told = _refused(roles)
    assert "TDI030" in told
    assert words in told


def test_a_tied_parameter_must_be_cut_in_all_of_its_layers() -> None:
    with torch.device("meta"):
        module = Layers()
        module.scale = nn.Module()
    module.scale.value = module.out.weight
    told = _refused({"out.weight": "row"}, module=module)
    assert "class Module cannot be cut by these roles: scale.value (row)" in told


def test_outputs_without_dtensors_stay_as_they_are() -> None:
    outputs = Outputs(logits=torch.ones(1))
    assert whole_outputs(outputs) is outputs
