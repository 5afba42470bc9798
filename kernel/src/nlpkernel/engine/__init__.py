"""The engine: a run as a few visible verbs. Importing a module of this room imports torch; this one does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nlpkernel.engine.api import run, train
    from nlpkernel.engine.opened import OpenModel, open_model

_HOMES = {"run": "api", "train": "api", "OpenModel": "opened", "open_model": "opened"}

__all__ = ["OpenModel", "open_model", "run", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nlpkernel.engine' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"nlpkernel.engine.{_HOMES[name]}"), name)
