"""Whether two states are equal bit for bit, and what distinguishes them where they are not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from nlpkernel.state import CLOCK, Leaf


def uncounted(path: str) -> bool:
    """Whether a leaf follows the clock, so that it is compared with nothing."""
    return path.startswith(CLOCK) or f"/{CLOCK}" in path


def states_differ(left: Mapping[str, Any], right: Mapping[str, Any]) -> str | None:
    """What distinguishes two states of one component, or None."""
    a, b = ({name: value for name, value in each.items() if not uncounted(name)} for each in (left, right))
    return value_difference(a, b)


def difference(left: Leaf | None, right: Leaf | None) -> str | None:
    """What distinguishes two leaves, or None where they are equal bit for bit."""
    if left is None or right is None:
        return "only in one of the two"
    if left.kind != right.kind:
        return f"{left.kind} and {right.kind}"
    return value_difference(left.value, right.value)


def value_difference(a: Any, b: Any) -> str | None:
    """What distinguishes two values of a state; NaN is equal to itself."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
        a, b = a.detach().cpu(), b.detach().cpu()
        if torch.equal(_bits(a), _bits(b)):
            return None
        if not (a.is_floating_point() or a.is_complex()):
            return f"{int((a != b).sum())} of {a.numel()} elements differ"
        worst = float((a - b).abs().nan_to_num(math.inf).max())
        return f"{int((_bits(a) != _bits(b)).any(-1).sum())} of {a.numel()} elements differ, by at most {worst:g}"
    if isinstance(a, float) and isinstance(b, float):
        same = a.hex() == b.hex()
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        return _first(sorted({*a, *b}, key=str), a, b, lambda each, key: key in each)
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and type(a) is type(b):
        count = max(len(a), len(b))
        return _first(range(count), a, b, lambda each, key: key < len(each))
    else:
        same = type(a) is type(b) and a == b
    return None if same else f"{_short(a)} and {_short(b)}"


def _first(keys: Any, a: Any, b: Any, has: Any) -> str | None:
    for key in keys:
        if not (has(a, key) and has(b, key)):
            return f"[{key!r}]: only in one of the two"
        what = value_difference(a[key], b[key])
        if what:
            return f"[{key!r}]: {what}"
    return None


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, a row an element."""
    return tensor.contiguous().reshape(-1, 1).view(torch.uint8)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
