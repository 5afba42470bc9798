"""Plans made of tiny components, and the events of their runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nlpkernel
from nlpkernel.events import Event


def tiny_values(**sections: Any) -> dict[str, Any]:
    """The values of a plan that fills every required slot with a tiny component.

    A section given as a table is laid over the tiny one; with another `use` it takes its place. None removes it. A run
    of so many epochs or tokens has no steps.
    """
    values: dict[str, Any] = {
        "name": "tiny",
        "train": {"steps": 4, "batch": 8, "log": {"every": 1}},
        "data": {"use": "tiny"},
        "model": {"use": "tiny"},
        "optimizer": {"use": "tiny"},
    }
    for name, section in sections.items():
        known = values.get(name)
        if section is None:
            values.pop(name, None)
        elif isinstance(known, dict) and isinstance(section, Mapping):
            if {"epochs", "tokens"} & section.keys():
                known.pop("steps", None)
            same = section.get("use", known.get("use")) == known.get("use")
            values[name] = {**known, **section} if same else dict(section)
        else:
            values[name] = section
    return values


def tiny_plan(*, base: str | Path = ".", **sections: Any) -> nlpkernel.Plan:
    """The plan of `tiny_values`; relative paths start from `base`."""
    return nlpkernel.Plan.of(tiny_values(**sections), base=base)


def record(plan: nlpkernel.Plan, runs_folder: str | Path, **options: Any) -> list[Event]:
    """Every event of a run, in order."""
    return list(nlpkernel.train(plan, runs_folder=runs_folder, **options))
