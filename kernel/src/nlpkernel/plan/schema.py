"""A JSON Schema (draft 2020-12) of plans, made from the classes of the components that are installed."""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from nlpkernel.components import PRESETS, FieldFacts, Setting, fields_of, is_settings
from nlpkernel.errors import Problem
from nlpkernel.hookspecs import POINTS, SLOTS
from nlpkernel.plan.structure import default_node
from nlpkernel.plan.train import Train
from nlpkernel.plugins.catalog import Catalog, Found

_OVERRIDE = {"type": "string", "pattern": r"\$\{"}


def plan_schema(catalog: Catalog | None = None) -> tuple[dict[str, Any], list[Problem]]:
    """The schema, and the components that had to be left out since they cannot be loaded."""
    catalog = catalog or Catalog()
    work = _Schemas(catalog)
    properties: dict[str, Any] = {
        "name": {"type": "string", "minLength": 1, "description": "the run's name, and its folder's"},
        "extends": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "plans that this one builds on",
        },
        "train": work.settings(Train),
    }
    for slot in SLOTS:
        one = work.point(slot)
        properties[slot] = {"type": "array", "items": one} if POINTS[slot].many else one
        properties[slot]["description"] = POINTS[slot].help
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nlpkernel plan",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": work.definitions,
    }
    return schema, work.problems


class _Schemas:
    """Schemas of extension points, each made once and referred to."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.definitions: dict[str, Any] = {}
        self.problems: list[Problem] = []

    def point(self, point: str) -> dict[str, Any]:
        """Any component of a point, or its bare name."""
        if point not in self.definitions:
            self.definitions[point] = {}
            tables, names = [], []
            for name in self.catalog.names(point):
                found = self.catalog.resolve(point, name, base=None, place=None)
                if isinstance(found, Problem):
                    self.problems.append(found)
                    continue
                names.append(name)
                tables.append(self.component(found))
            local = {"type": "object", "required": ["use"], "properties": {"use": {"pattern": r"\.py:|:"}}}
            self.definitions[point] = {"anyOf": [{"enum": names}, *tables, local]}
        return {"$ref": f"#/$defs/{point}"}

    def component(self, found: Found) -> dict[str, Any]:
        """A component's table."""
        schema = self.settings(found.cls)
        schema["properties"] = {"use": {"const": found.use}, **schema["properties"]}
        schema["required"] = ["use", *schema.get("required", [])]
        schema["description"] = (found.cls.__doc__ or "").strip().partition("\n")[0]
        return schema

    def settings(self, cls: type) -> dict[str, Any]:
        """A table of settings."""
        fields = fields_of(cls)
        presets = list(getattr(cls, PRESETS, {}))
        properties = {field.name: self._field(field, presets) for field in fields}
        given_by_preset = {key for preset in getattr(cls, PRESETS, {}).values() for key in preset}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [field.name for field in fields if field.required and field.name not in given_by_preset]
        return {**schema, "required": required} if required else schema

    def _field(self, field: FieldFacts, presets: Sequence[str]) -> dict[str, Any]:
        if field.name == "preset" and presets:
            schema: dict[str, Any] = {"enum": list(presets)}
        elif field.facts.point is not None:
            one = self.point(field.facts.point)
            schema = {"type": "array", "items": one} if field.facts.many else {"anyOf": [one]}
        else:
            schema = self._type(field.type, field.facts)
        if field.facts.help:
            schema["description"] = field.facts.help
        if not field.required and field.default is not None:
            schema["default"] = default_node(field.default).plain()
        return schema

    def _type(self, kind: Any, facts: Setting) -> dict[str, Any]:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._type(each, facts) for each in arguments]}
        if is_settings(kind):
            return self.settings(kind)
        if origin in (list, tuple, set, frozenset):
            inner = attrs.evolve(facts, min_length=None)
            if origin is tuple and Ellipsis not in arguments:
                items = [self._type(each, inner) for each in arguments]
                return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
            schema: dict[str, Any] = {"type": "array", "items": self._type((arguments or (Any,))[0], inner)}
            return schema if facts.min_length is None else {**schema, "minItems": facts.min_length}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._type(arguments[1], facts)}
        return self._scalar(kind, facts)

    @staticmethod
    def _scalar(kind: Any, facts: Setting) -> dict[str, Any]:
        if kind in (int, float):
            bounds = {
                "exclusiveMinimum": facts.gt,
                "minimum": facts.ge,
                "exclusiveMaximum": facts.lt,
                "maximum": facts.le,
            }
            number: dict[str, Any] = {"type": "integer" if kind is int else "number"}
            number |= {key: value for key, value in bounds.items() if value is not None}
            text = {"type": "string"} if facts.unit else _OVERRIDE
            return {"anyOf": [number, dict(text)]}
        if kind is bool:
            return {"anyOf": [{"type": "boolean"}, dict(_OVERRIDE)]}
        if kind in (str, Path):
            return {"type": "string"} | ({"minLength": facts.min_length} if facts.min_length else {})
        return {"type": "null"} if kind is type(None) else {}
