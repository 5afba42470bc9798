"""Tensors as bytes of the wire, which are little-endian, and back, without a copy where the host allows it."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

import torch
from torch import Tensor

from nlpkernel_zmq.wire.frames import BadFrame

_LITTLE = sys.byteorder == "little"
_QUANTIZED: Final = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}

DTYPES: Final[dict[str, torch.dtype]] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    # A quantized tensor is more than its numbers: it has scales, which do not travel.
    if isinstance(dtype, torch.dtype) and dtype not in _QUANTIZED
}
"""Each dtype that travels, by its name on the wire, which is torch's."""

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


def name_of(dtype: torch.dtype) -> str:
    """The name of a dtype on the wire. Raises `BadFrame` for one that does not travel."""
    name = _NAMES.get(dtype)
    if name is None:
        raise BadFrame("field", f"the dtype {dtype} does not travel")
    return name


def dtype_of(name: str) -> torch.dtype:
    """The dtype of a name on the wire. Raises `BadFrame` for an unknown one."""
    dtype = DTYPES.get(name)
    if dtype is None:
        raise BadFrame("field", f"the dtype {name[:40]!r} is unknown")
    return dtype


def buffer_of(tensor: Tensor) -> memoryview:
    """The numbers of a tensor as bytes. It is the tensor's own memory if that is dense and on the host, else a copy.

    The view keeps the memory alive; who writes the tensor while the view is being sent sends torn numbers.
    """
    name_of(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise BadFrame("field", f"a tensor of layout {tensor.layout} does not travel")
    dense = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
    size = dense.numel() * dense.itemsize
    if size == 0:
        return memoryview(b"")
    view = _at(dense.data_ptr(), size, dense)
    return view if _LITTLE else memoryview(_swapped(view, _width(dense.dtype)))


def view_of(buffer: bytes | bytearray | memoryview, dtype: torch.dtype | str, elements: int) -> Tensor:
    """The flat tensor of `elements` numbers whose bytes a buffer holds, in place, and so perhaps not aligned.

    It is to be read, or copied from; only where the buffer can be written can the tensor be. Raises `BadFrame`
    where the buffer does not have exactly the bytes of so many numbers.
    """
    if isinstance(dtype, str):
        dtype = dtype_of(dtype)
    name = name_of(dtype)
    view = memoryview(buffer)
    if elements < 0 or view.nbytes != elements * dtype.itemsize:
        raise BadFrame("field", f"{view.nbytes} bytes are not {elements} numbers of {name}")
    if elements == 0:
        return torch.empty(0, dtype=dtype)
    if not view.contiguous:
        view = memoryview(bytearray(view))
    if not _LITTLE:
        view = memoryview(_swapped(view, _width(dtype)))
    elif view.readonly:
        # `torch.frombuffer` warns of memory that cannot be written. We know: a received frame is only read.
        view = _at(_address(view), view.nbytes, view)
    return torch.frombuffer(view, dtype=torch.uint8).view(dtype)


def _width(dtype: torch.dtype) -> int:
    """Bytes of one number: of each part of a complex one."""
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize


def _swapped(view: memoryview, width: int) -> bytearray:
    """A copy with the bytes of each number in the other order."""
    source = bytes(view)
    out = bytearray(len(source))
    for place in range(width):
        out[place::width] = source[width - 1 - place :: width]
    return out


def _at(address: int, size: int, owner: object) -> memoryview:
    """The memory at an address, for as long as the view lives, since the view keeps its owner."""
    memory = (ctypes.c_ubyte * size).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


class _Exported(ctypes.Structure):
    """CPython's `Py_buffer`, of which the address is read."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _address(view: memoryview) -> int:
    exported = _Exported()
    # 0 is PyBUF_SIMPLE: bytes in a row, which `view` is, to be read only.
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(exported), 0)
    address: int = exported.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(exported))
    return address
