"""nlpkernel: a plugin microkernel for training NLP and language models.

Everything here is imported on first use, so that `import nlpkernel` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nlpkernel.components import component, extension, hookimpl, setting, settings
    from nlpkernel.engine import OpenModel, open_model, run, train
    from nlpkernel.plan import Plan
    from nlpkernel.report import Report

__version__ = "0.1.0"

_HOMES = {
    "component": "nlpkernel.components",
    "extension": "nlpkernel.components",
    "hookimpl": "nlpkernel.components",
    "setting": "nlpkernel.components",
    "settings": "nlpkernel.components",
    "Plan": "nlpkernel.plan",
    "Report": "nlpkernel.report",
    "OpenModel": "nlpkernel.engine",
    "open_model": "nlpkernel.engine",
    "run": "nlpkernel.engine",
    "train": "nlpkernel.engine",
}

__all__ = [
    "OpenModel",
    "Plan",
    "Report",
    "component",
    "extension",
    "hookimpl",
    "open_model",
    "run",
    "setting",
    "settings",
    "train",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'nlpkernel' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
