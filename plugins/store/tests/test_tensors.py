"""Tensors of every kind through a version and back."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open
from torch import nn

from nlpkernel.errors import CheckpointError
from nlpkernel.state import Leaf
from nlpkernel_store.packs import TYPES

DTYPES = [getattr(torch, name) for name in TYPES]
RAGGED = [dtype for dtype in DTYPES if dtype not in (torch.bool, torch.float4_e2m1fn_x2)]


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_zeros(0)


@pytest.fixture(params=[True, False], ids=["asynchronous", "waiting"])
def through(request, open_store, snapshot, put):
    """Save tensors, and load them in another store."""

    def pass_through(**values):
        store = open_store(asynchronous=request.param)
        put(store, snapshot(tree={name: Leaf(value) for name, value in values.items()}))
        return {name: leaf.value for name, leaf in open_store(write=False).load().tree.items()}

    return pass_through


def other_tools(run):
    """What safetensors itself finds in the packs."""
    found = {}
    for path in (run.folder / "versions/packs").iterdir():
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_that_safetensors_knows_comes_back_bit_for_bit(through, run, dtype):
    bits = torch.arange(64, dtype=torch.uint8)
    if dtype == torch.bool:
        bits %= 2
    values = bits.view(dtype).reshape(2, -1)
    back = through(x=values, odd=torch.ones(1, dtype=torch.uint8))["x"]
    assert back.dtype == dtype
    assert back.shape == values.shape
    assert torch.equal(raw(back), raw(values))
    seen = other_tools(run)["x"]
    assert (seen.dtype, seen.shape) == (dtype, values.shape)
    assert torch.equal(raw(seen), raw(values))


def test_types_of_all_sizes_in_one_version_stand_where_they_may(through, run):
    values = {}
    for number, dtype in enumerate(RAGGED):
        values[str(dtype)] = torch.arange(24 + 8 * number, dtype=torch.uint8).view(dtype)
        values[f"aligned {dtype}"] = torch.arange(64, dtype=torch.uint8).roll(number + 1).view(dtype)
    back = through(**values)
    for name, value in values.items():
        assert torch.equal(raw(back[name]), raw(value)), name
        assert back[name].data_ptr() % value.itemsize == 0
        assert torch.equal(raw(other_tools(run)[name]), raw(value)), name


@pytest.mark.parametrize("dtype", RAGGED, ids=str)
def test_a_transposed_tensor_comes_back_with_its_values(through, dtype):
    values = torch.arange(96, dtype=torch.uint8).view(dtype).reshape(4, -1).t()
    back = through(x=values)["x"]
    assert back.dtype == dtype
    assert back.shape == values.shape
    assert torch.equal(raw(back), raw(values))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_scalars_and_empty_tensors_keep_their_shape(through, shape, dtype):
    back = through(x=torch.ones(shape, dtype=dtype), y=torch.zeros(shape, dtype=dtype))
    assert back["x"].shape == back["y"].shape == torch.Size(shape)
    assert back["x"].dtype == dtype
    assert bool(back["x"].all())
    assert not bool(back["y"].any())


def test_tied_leaves_are_written_once_and_come_back_as_one_tensor(through, run):
    weight = nn.Parameter(torch.randn(5, 7))
    back = through(embedding=weight, head=weight)
    assert back["embedding"] is back["head"]
    assert not back["head"].requires_grad
    assert set(other_tools(run)) == {"embedding"}


def test_equal_tensors_are_written_once_and_come_back_apart(through, run):
    first = torch.randn(50)
    back = through(a=first, b=first.clone(), c=first.clone().view(5, 10), zeros=torch.zeros(50))
    assert set(other_tools(run)) == {"a", "zeros"}
    back["a"].zero_()
    assert torch.equal(back["b"], first)
    assert torch.equal(back["c"], first.view(5, 10))


def test_views_that_share_memory_without_being_the_same_keep_their_own_values(through):
    whole = torch.arange(12.0)
    square = whole[:4].view(2, 2)
    back = through(a=whole, b=whole[:6], c=whole[3:9], d=square, e=square.t(), f=whole[::2])
    assert torch.equal(back["a"], whole)
    assert torch.equal(back["b"], whole[:6])
    assert torch.equal(back["c"], whole[3:9])
    assert torch.equal(back["d"], square)
    assert torch.equal(back["e"], square.t())
    assert torch.equal(back["f"], whole[::2])


def test_lazy_conjugates_and_expanded_tensors_are_written_as_they_read(through):
    number = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    one = torch.tensor([7.0])
    back = through(n=number, c=number.conj(), i=number.conj().imag, e=one.expand(3))
    assert torch.equal(back["n"], number)
    assert torch.equal(back["c"], number.conj().resolve_conj())
    assert back["i"].tolist() == [-2.0, 4.0]
    assert back["e"].tolist() == [7.0, 7.0, 7.0]


def test_leaves_of_another_shape_or_type_in_the_next_save_are_laid_out_anew(open_store, snapshot, put):
    store = open_store()
    trees = [
        {"a": torch.ones(3), "b": torch.zeros(2, 2)},
        {"a": torch.ones(3), "b": torch.zeros(4)},
        {"a": torch.ones(3, dtype=torch.int16)},
        {"a": torch.ones(3000), "b": torch.full((70,), 2.0)},
        {},
        {"c": torch.tensor(5)},
    ]
    for step, tree in enumerate(trees, 1):
        put(
            store,
            snapshot(step=step, tree={name: Leaf(value) for name, value in tree.items()} or {"n": Leaf(1)}),
        )
    for step, tree in enumerate(trees, 1):
        back = store.load(str(step)).tree
        for name, value in tree.items():
            assert back[name].value.dtype == value.dtype
            assert torch.equal(back[name].value, value)


def test_loaded_tensors_map_the_file_and_writing_to_one_does_not_reach_it(open_store, snapshot, put, run):
    store = open_store()
    put(store, snapshot(tree={"x": Leaf(torch.zeros(1 << 16))}))
    back = store.load().tree["x"].value
    (pack,) = (run.folder / "versions/packs").iterdir()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert str(pack) in maps.read()
    back += 1
    assert not bool(store.load().tree["x"].value.any())
    pack.unlink()
    assert back.sum().item() == 1 << 16


class Odd(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.zeros(2, dtype=torch.complex128), "complex128"),
        (torch.zeros(2, 2).to_sparse(), "sparse"),
        (torch.zeros(2, device="meta"), "meta"),
        (torch.zeros(2).as_subclass(Odd), "Odd"),
    ],
    ids=["complex128", "sparse", "meta", "subclass"],
)
def test_a_tensor_that_no_file_holds_is_refused_by_its_path(open_store, snapshot, run, value, why):
    with pytest.raises(CheckpointError) as caught:
        open_store().save(snapshot(tree={"optimizer/odd": Leaf(value)}))
    assert "STO001 optimizer/odd cannot be stored" in str(caught.value)
    assert why in str(caught.value)
    assert not (run.folder / "versions").exists()
