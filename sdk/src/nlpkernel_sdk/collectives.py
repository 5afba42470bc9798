"""Collectives that an observer starts are refused and noted: one that is detached on one worker would leave the others
waiting for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import CodeType
from typing import Any

import torch.distributed as dist

from nlpkernel.bus import Bus
from nlpkernel.plugins.hooks import Hooks

_NAMES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "new_group",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
#: What runs while observers are told something.
_TELLING: frozenset[CodeType] = frozenset({Bus.publish.__code__, Hooks.observe.__code__})


def refuse(path: Path) -> None:
    """From now on, in this process. Each that is tried raises RuntimeError and is a name in the list in `path`."""
    tried: list[str] = []

    def guarded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def collective(*arguments: Any, **more: Any) -> Any:
            frame = sys._getframe(1)
            while frame is not None:
                if frame.f_code in _TELLING:
                    tried.append(name)
                    path.write_text(json.dumps(tried), encoding="utf-8")
                    raise RuntimeError(f"an observer starts the collective {name}")
                frame = frame.f_back  # type: ignore[assignment]
            return real(*arguments, **more)

        return collective

    for name in _NAMES:
        real = getattr(dist, name, None)
        if real is not None:
            setattr(dist, name, guarded(name, real))
