"""How two filled plans differ, setting by setting."""

from __future__ import annotations

import tomllib
from typing import Any


def differences(before: str, after: str) -> list[tuple[str, Any, Any]]:
    """Settings that differ between two plans given as `Plan.text` writes them: dotted path and both values, None where
    one has no such setting."""
    left, right = _flat(tomllib.loads(before)), _flat(tomllib.loads(after))
    paths = list(dict.fromkeys([*left, *right]))
    return [(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        below = [(f"{path}.{key}" if path else key, each) for key, each in value.items()]
    elif isinstance(value, list):
        below = [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    else:
        return {path: value}
    return {name: leaf for at, each in below for name, leaf in _flat(each, at).items()}
