"""Tensors of a version by name, whole: pieces from several workers are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nlpkernel.state import Addends, Spread, weights_of
from nlpkernel_store.examine import Mapped
from nlpkernel_store.manifest import Manifest, Part
from nlpkernel_store.restore import restore

#: Elements that are compared at once.
_CHUNK = 1 << 22


def model_weights(manifest: Manifest, parts: Sequence[Part], mapped: Mapped) -> dict[str, Tensor]:
    """The model's tensors that are to be used, under its own names; what lies in one piece is the mapped files."""
    return {
        name: whole(leaf.value)
        for name, leaf in weights_of(restore(manifest, parts, mapped).tree).items()
        if isinstance(leaf.value, (Tensor, Spread))
    }


def whole(value: Any) -> Any:
    """A value of a loaded leaf in one: pieces put together, addends added up."""
    if isinstance(value, Spread):
        return value.whole()
    return value.total() if isinstance(value, Addends) else value


def equal(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of one shape and type are the same bit for bit."""
    return left.numel() == 0 or torch.equal(*(_bits(each) for each in (left, right)))


def distance(left: Tensor, right: Tensor) -> float:
    """The greatest absolute difference of two tensors of one shape; NaN where only one of two numbers is one."""
    most = 0.0
    flat = left.reshape(-1), right.reshape(-1)
    for start in range(0, flat[0].numel(), _CHUNK):
        a, b = (_number(each[start : start + _CHUNK]) for each in flat)
        gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
        largest = float(gap.max())
        if largest != largest:
            return largest
        most = max(most, largest)
    return most


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _number(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.float4_e2m1fn_x2:
        tensor = tensor.view(
            torch.uint8
        )  # torch computes nothing with them: the difference of the pairs' codes.
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
