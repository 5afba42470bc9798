"""Tensors on the wire: every dtype, every shape, no copy that is not needed, no warning."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_zmq.wire import tensors
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import DTYPES, buffer_of, dtype_of, name_of, view_of

COMMON = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
]
COMMON += ["int8", "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "complex32"]
each_dtype = pytest.mark.parametrize("name", sorted(DTYPES))


def numbers(name: str, count: int) -> torch.Tensor:
    """Numbers of a dtype with all bytes in them that it can have, and not-a-number too."""
    dtype = DTYPES[name]
    raw = (torch.arange(count * dtype.itemsize, dtype=torch.int32) * 37 + 11).to(torch.uint8)
    return (raw & 1 if dtype is torch.bool else raw).view(dtype)


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


def test_the_dtypes_that_models_have_travel():
    assert set(COMMON) <= set(DTYPES)
    assert not any(name.startswith("q") for name in DTYPES)


@each_dtype
def test_a_dtype_has_one_name_both_ways(name):
    assert name_of(dtype_of(name)) == name
    assert f"torch.{name}" == str(dtype_of(name))


@pytest.mark.parametrize(
    "name", ["", "float", "half", "torch.float32", "qint8", "Float32", "float32 ", "nn", "load"]
)
def test_an_unknown_dtype_is_refused(name):
    with pytest.raises(BadFrame, match="unknown") as caught:
        dtype_of(name)
    assert caught.value.code == "field"


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_does_not_travel_is_refused():
    quantized = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    for tensor in (quantized, torch.eye(3).to_sparse()):
        with pytest.raises(BadFrame, match="does not travel"):
            buffer_of(tensor)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@each_dtype
@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_every_dtype_comes_back_from_a_buffer_at_any_address(name, writable, shift):
    sent = numbers(name, 12)
    sent_bytes = bytes(buffer_of(sent))
    held = bytearray(shift) + sent_bytes
    buffer = memoryview(held if writable else bytes(held))[shift:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back = view_of(buffer, dtype_of(name), 12)
    assert back.dtype is sent.dtype
    assert back.shape == (12,)
    assert raw(back) == sent_bytes == raw(sent)
    if name in COMMON:
        kept = torch.empty(12, dtype=back.dtype)
        kept.copy_(back)
        assert raw(kept) == raw(sent)


@each_dtype
def test_a_scalar_an_empty_one_and_a_leaf_travel(name):
    scalar = numbers(name, 1).reshape(())
    assert raw(view_of(buffer_of(scalar), name, 1)) == raw(scalar)
    for shape in ((0,), (0, 3), (2, 0)):
        empty = torch.empty(shape, dtype=DTYPES[name])
        assert bytes(buffer_of(empty)) == b""
    assert view_of(b"", name, 0).shape == (0,)
    assert view_of(memoryview(b""), name, 0).dtype is DTYPES[name]
    if DTYPES[name].is_floating_point or DTYPES[name].is_complex:
        leaf = numbers(name, 4).requires_grad_()
        assert raw(view_of(buffer_of(leaf), name, 4)) == raw(leaf)


@pytest.mark.parametrize("name", COMMON)
def test_a_dense_tensor_is_not_copied_and_another_is(name):
    dense = numbers(name, 12).reshape(3, 4)
    view = view_of(buffer_of(dense), name, 12)
    assert view.data_ptr() == dense.data_ptr()
    assert view_of(buffer_of(dense[1:]), name, 8).data_ptr() == dense[1:].data_ptr()
    turned = dense.t()
    assert raw(view_of(buffer_of(turned), name, 12)) == raw(turned)
    assert view_of(buffer_of(turned), name, 12).data_ptr() != dense.data_ptr()
    strided = dense.reshape(-1)[::2]
    assert raw(view_of(buffer_of(strided), name, 6)) == raw(strided)
    spread = dense[0, :1].expand(5)
    assert raw(view_of(buffer_of(spread), name, 5)) == raw(spread)


def test_a_conjugate_and_a_negative_view_travel_as_what_they_are():
    base = torch.tensor([1 + 2j, 3 - 4j])
    assert view_of(buffer_of(base.conj()), "complex64", 2).tolist() == [1 - 2j, 3 + 4j]
    assert view_of(buffer_of(base.conj().imag), "float32", 2).tolist() == [-2.0, 4.0]


def test_a_view_keeps_its_memory():
    view = buffer_of(torch.full((1000,), 7.0))
    _ = [torch.zeros(1000) for _ in range(50)]
    assert bytes(view) == b"\x00\x00\xe0\x40" * 1000
    kept = view_of(bytes(range(200)) + b"\x00" * 3800, "uint8", 4000)
    _ = [bytes(4000) for _ in range(50)]
    assert kept[:200].tolist() == list(range(200))


def test_writing_the_tensor_shows_in_its_view_and_back():
    tensor = torch.zeros(4)
    view = buffer_of(tensor)
    tensor[1] = 1.0
    assert bytes(view[4:8]) == b"\x00\x00\x80\x3f"
    memory = bytearray(8)
    view_of(memory, "float32", 2).fill_(1.0)
    assert bytes(memory) == b"\x00\x00\x80\x3f" * 2


@pytest.mark.parametrize(
    ("size", "elements"), [(8, 3), (8, 1), (7, 2), (0, 1), (8, 0), (8, -2), (0, -1), (8, 2**62)]
)
def test_a_payload_of_another_size_is_refused(size, elements):
    with pytest.raises(BadFrame, match="bytes are not") as caught:
        view_of(bytes(size), torch.float32, elements)
    assert caught.value.code == "field"


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=64), st.sampled_from(sorted(DTYPES)), st.integers(-1, 70))
def test_any_payload_fits_or_is_refused(data, name, elements):
    try:
        assert view_of(data, name, elements).numel() * DTYPES[name].itemsize == len(data)
    except BadFrame:
        assert len(data) != elements * DTYPES[name].itemsize


def test_a_stretched_memoryview_is_read_as_its_bytes():
    assert view_of(memoryview(bytes(range(8)))[::2], "uint8", 4).tolist() == [0, 2, 4, 6]


FIXTURES = {
    "bfloat16": (torch.tensor([1.0, -2.0], dtype=torch.bfloat16), "803f00c0"),
    "float32": (torch.tensor([1.0, -2.0]), "0000803f000000c0"),
    "int64": (torch.tensor([258]), "0201000000000000"),
    "complex64": (torch.tensor([1 - 2j]), "0000803f000000c0"),
    "uint8": (torch.tensor([1, 2], dtype=torch.uint8), "0102"),
}


@pytest.mark.parametrize("name", FIXTURES)
def test_numbers_are_little_endian_on_the_wire(name):
    tensor, wire = FIXTURES[name]
    assert bytes(buffer_of(tensor)).hex() == wire
    assert torch.equal(view_of(bytes.fromhex(wire), name, tensor.numel()), tensor)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_host_of_the_other_byte_order_swaps_the_bytes_of_each_number(name, monkeypatch):
    """Numbers as such a host has them in memory: each with its bytes turned around."""
    tensor, wire = FIXTURES[name]
    width = tensor.itemsize // 2 if tensor.is_complex() else tensor.itemsize
    memory = b"".join(
        bytes.fromhex(wire)[start : start + width][::-1] for start in range(0, len(wire) // 2, width)
    )
    theirs = torch.frombuffer(bytearray(memory), dtype=torch.uint8).view(tensor.dtype)
    monkeypatch.setattr(tensors, "_LITTLE", False)
    assert bytes(buffer_of(theirs)).hex() == wire
    back = view_of(bytes.fromhex(wire), name, tensor.numel())
    assert raw(back) == memory


def test_a_fresh_process_reads_what_cannot_be_written_without_a_warning():
    code = (
        "import torch; torch.set_warn_always(True)\n"
        "from nlpkernel_zmq.wire.tensors import view_of\n"
        "assert view_of(bytes(8), 'float32', 2).tolist() == [0.0, 0.0]\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
