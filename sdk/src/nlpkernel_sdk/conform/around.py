"""The tiny plan around a component, by its point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nlpkernel.hookspecs import POINTS
from nlpkernel_sdk.conform.checks import NotApplicable
from nlpkernel_sdk.plans import tiny_values

if TYPE_CHECKING:
    from nlpkernel_sdk.conform.subject import Part

#: Components of the SDK that fit each other, and no text.
_REGRESSION = ("nlpkernel-sdk:tiny",)
_TEXT = ("reader", "stage", "augmentation", "sampler", "tokenizer", "task")
_KEY = {"reader": "format", "stage": "stages", "augmentation": "augment"}
#: Where the table of a component stands in its tiny plan, where that is not its point.
ADDRESSES = {
    "policy": "train.policy[0]",
    "schedule": "optimizer.schedule",
    "transform": "model.transform[0]",
    "compressor": "communicator.compressor",
    "reader": "data.format",
    "stage": "data.stages[0]",
    "augmentation": "data.augment[0]",
    "sampler": "data.sampler",
    "tokenizer": "data.tokenizer",
    "task": "data.task",
}


def around(part: Part, table: dict[str, Any], train: dict[str, Any]) -> dict[str, Any]:
    """Values of a plan of six steps with the component's table in its place. Raise NotApplicable for a point that
    nobody here opens."""
    point = part.point
    text = {"data": {"use": "tiny-text"}, "model": {"use": "tiny-text"}}
    sections: dict[str, Any] = {
        "name": "conform",
        "train": {"steps": 6, "evaluate": {"every": 3}, **train},
        "checkpoint": {"use": "memory"},
    }
    if point in _TEXT:
        own = [table] if point in ("stage", "augmentation") else table
        sections |= {**text, "data": {**text["data"], _KEY.get(point, point): own}}
        if point == "reader":
            sample = part.config.get("sample")
            if sample is None:
                raise NotApplicable(f'it needs a file: give `sample` in the table of "{part.name}"')
            sections["data"]["path"] = str((part.subject.config.base / sample).absolute())
    elif point == "model":
        sections |= {"data": text["data"], "model": table}
    elif point == "data":
        sections |= {"data": table, "model": text["model"]}
    elif point == "transform":
        sections |= {**text, "model": {**text["model"], "transform": [table]}}
    elif point == "schedule":
        sections["optimizer"] = {"use": "scheduled", "schedule": table}
    elif point == "compressor":
        sections["communicator"] = {"use": "wire", "compressor": table}
    elif point == "policy":
        sections["train"]["policy"] = [table]
    elif point == "communicator":
        # One worker needs nobody to start the others.
        own = {"workers": 1} if "workers" in {field.name for field in part.fields} else {}
        sections[point] = {**own, **table}
    elif point in POINTS:
        sections[point] = [table] if POINTS[point].many else table
    elif "plan" not in part.config:
        raise NotApplicable(f"nobody here knows who opens the point {point!r}: give a whole `plan` around it")
    if table["use"] in _REGRESSION and point in ("data", "model"):
        sections.pop("model" if point == "data" else "data")
    own = _placed(part.config.get("plan", {}), table)
    if "train" in own:
        own["train"] = {**sections["train"], **own["train"]}
    return tiny_values(**{**sections, **own})


def _placed(value: Any, table: dict[str, Any]) -> Any:
    """Sections of an author's plan, with the component where they say `use = "@"`."""
    if isinstance(value, Mapping):
        if value.get("use") == "@":
            return {**table, **{key: each for key, each in value.items() if key != "use"}}
        return {key: _placed(each, table) for key, each in value.items()}
    return [_placed(each, table) for each in value] if isinstance(value, list) else value
