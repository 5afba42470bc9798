from __future__ import annotations

import pytest
import torch
from safetensors import safe_open
from torch import nn

from nlpkernel.errors import CheckpointError
from nlpkernel.state import Leaf
from nlpkernel_folder import tensors

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint64,
    torch.uint32,
    torch.uint16,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.float4_e2m1fn_x2,
]


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_zeros(0)


def through(tmp_path, **values):
    made = tensors.prepare(values.items())
    made.write(tmp_path / "t.safetensors")
    return tensors.read(tmp_path / "t.safetensors", made.names)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_that_safetensors_knows_comes_back_bit_for_bit(tmp_path, dtype):
    bits = torch.arange(64, dtype=torch.uint8)
    if dtype == torch.bool:
        bits %= 2
    values = bits.view(dtype).reshape(2, -1)
    back = through(tmp_path, x=values)["x"]
    assert back.dtype == dtype
    assert back.shape == values.shape
    assert torch.equal(raw(back), raw(values))


@pytest.mark.parametrize(
    "dtype", [d for d in DTYPES if d not in (torch.bool, torch.float4_e2m1fn_x2)], ids=str
)
def test_a_transposed_tensor_comes_back_with_its_values(tmp_path, dtype):
    values = torch.arange(96, dtype=torch.uint8).view(dtype).reshape(4, -1).t()
    back = through(tmp_path, x=values)["x"]
    assert back.dtype == dtype
    assert back.shape == values.shape
    assert torch.equal(raw(back), raw(values))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_scalars_and_empty_tensors_keep_their_shape(tmp_path, shape, dtype):
    back = through(tmp_path, x=torch.ones(shape, dtype=dtype), y=torch.zeros(shape, dtype=dtype))
    assert back["x"].shape == back["y"].shape == torch.Size(shape)
    assert back["x"].dtype == dtype
    assert bool(back["x"].all())
    assert not bool(back["y"].any())


def test_tied_leaves_are_written_once_and_come_back_as_one_tensor(tmp_path):
    weight = nn.Parameter(torch.randn(5, 7))
    back = through(tmp_path, embedding=weight, head=weight, other=weight.detach().clone())
    assert back["embedding"] is back["head"]
    assert back["other"] is not back["head"]
    assert not back["head"].requires_grad
    with safe_open(tmp_path / "t.safetensors", framework="pt") as file:
        assert set(file.keys()) == {"embedding", "other"}


def test_views_that_share_memory_without_being_the_same_keep_their_own_values(tmp_path):
    whole = torch.arange(12.0)
    square = whole[:4].view(2, 2)
    back = through(tmp_path, a=whole, b=whole[:6], c=whole[3:9], d=square, e=square.t(), f=whole[::2])
    assert torch.equal(back["a"], whole)
    assert torch.equal(back["b"], whole[:6])
    assert torch.equal(back["c"], whole[3:9])
    assert torch.equal(back["d"], square)
    assert torch.equal(back["e"], square.t())
    assert torch.equal(back["f"], whole[::2])


def test_lazy_conjugates_and_expanded_tensors_are_written_as_they_read(tmp_path):
    number = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    one = torch.tensor([7.0])
    back = through(tmp_path, n=number, c=number.conj(), i=number.conj().imag, e=one.expand(3))
    assert torch.equal(back["n"], number)
    assert torch.equal(back["c"], number.conj().resolve_conj())
    assert back["i"].tolist() == [-2.0, 4.0]
    assert back["e"].tolist() == [7.0, 7.0, 7.0]


def test_a_file_may_hold_no_tensor_at_all(tmp_path):
    assert through(tmp_path) == {}


def test_loaded_tensors_map_the_file_and_writing_to_one_does_not_reach_it(tmp_path):
    path = tmp_path / "t.safetensors"
    back = through(tmp_path, x=torch.zeros(1 << 16))["x"]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert str(path) in maps.read()
    back += 1
    path_again = tensors.read(path, {"x": "x"})["x"]
    assert not bool(path_again.any())
    path.unlink()
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
    assert "FLD001 optimizer/odd cannot be stored" in str(caught.value)
    assert why in str(caught.value)
    assert not (run.folder / "versions").exists()
