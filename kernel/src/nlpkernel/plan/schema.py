"""A JSON Schema (draft 2020-12) of plans, made from the classes of the components that are installed."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from nlpkernel.components import PRESETS, FieldFacts, Setting, fields_of, is_settings
from nlpkernel.errors import Problem
from nlpkernel.hookspecs import POINTS, SLOTS
from nlpkernel.plan.structure import default_node
from nlpkernel.plan.train import Train
from nlpkernel.plugins.catalog import Catalog, Found

#: Any value may come from the environment, and is a text then.
_REFERENCE = {"type": "string", "pattern": r"\$\{"}
#: A component that the schema does not know: of a named distribution, in a local file, named by the environment.
_ELSEWHERE = {"type": "string", "pattern": r":|\$\{"}


def plan_schema(catalog: Catalog | None = None) -> tuple[dict[str, Any], list[Problem]]:
    """The schema, and the components that had to be left out since they cannot be loaded.

    It refuses nothing that a plan may hold, and lets through what only `check` can see (settings that do not go
    together, say).
    """
    work = _Schemas(catalog or Catalog())
    properties: dict[str, Any] = {
        "name": {"type": "string", "minLength": 1, "description": "the run's name, and its folder's"},
        "extends": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "plans that this one builds on",
        },
        "train": _any(work.settings(Train)),
    }
    for slot in SLOTS:
        one = work.point(slot)
        many = _any({"type": "array", "items": one})
        properties[slot] = {**(many if POINTS[slot].many else one), "description": POINTS[slot].help}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nlpkernel plan",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": work.definitions,
    }
    return schema, work.problems


def _any(*options: dict[str, Any]) -> dict[str, Any]:
    """One of several, or a reference to the environment."""
    if options == ({"type": "string"},):
        return options[0]
    return {"anyOf": [*options, dict(_REFERENCE)]}


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
            elsewhere = {"type": "object", "required": ["use"], "properties": {"use": dict(_ELSEWHERE)}}
            self.definitions[point] = {"anyOf": [{"enum": names}, *tables, elsewhere, dict(_ELSEWHERE)]}
        return {"$ref": f"#/$defs/{point}"}

    def component(self, found: Found) -> dict[str, Any]:
        """A component's table."""
        schema = self.settings(found.cls)
        schema["properties"] = {"use": {"const": found.use}, **schema["properties"]}
        schema["required"] = ["use", *schema.get("required", [])]
        schema["description"] = (found.cls.__doc__ or "").strip().partition("\n")[0]
        return schema

    def settings(self, cls: type, *, given: bool = False) -> dict[str, Any]:
        """A table of settings. Where a default or a preset gives the table, each of them may be left out."""
        presets: Mapping[str, Mapping[str, Any]] = getattr(cls, PRESETS, {})
        by_preset = {key for preset in presets.values() for key in preset}
        properties, required = {}, []
        for field in fields_of(cls):
            properties[field.name] = self._field(field, list(presets), given=field.name in by_preset)
            if field.required and not given and field.name not in by_preset:
                required.append(field.name)
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**schema, "required": required} if required else schema

    def _field(self, field: FieldFacts, presets: Sequence[str], *, given: bool) -> dict[str, Any]:
        null = [{"type": "null"}] if field.default is None else []
        if field.name == "preset" and presets:
            schema = _any({"enum": list(presets)}, *null)
        elif field.facts.point is not None:
            one = self.point(field.facts.point)
            schema = _any({"type": "array", "items": one} if field.facts.many else one, *null)
        else:
            given = given or attrs.has(type(field.default))
            schema = _any(*self._options(field.type, field.facts, given=given))
        if field.facts.help:
            schema = {**schema, "description": field.facts.help}
        if not field.required and field.default is not None:
            schema = {**schema, "default": default_node(field.default).plain()}
        return schema

    def _options(self, kind: Any, facts: Setting, *, given: bool = False) -> list[dict[str, Any]]:
        """What a value of a type may be."""
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return [{"enum": list(arguments)}]
        if origin in (Union, types.UnionType):
            return [option for each in arguments for option in self._options(each, facts, given=given)]
        if is_settings(kind):
            return [self.settings(kind, given=given)]
        if origin in (list, tuple):
            inner = attrs.evolve(facts, min_length=None)
            items = [_any(*self._options(each, inner)) for each in arguments if each is not Ellipsis]
            if origin is tuple and Ellipsis not in arguments:
                size = {"minItems": len(items), "maxItems": len(items)}
                return [{"type": "array", "prefixItems": items, **size}]
            schema: dict[str, Any] = {"type": "array", "items": items[0]}
            return [schema if facts.min_length is None else {**schema, "minItems": facts.min_length}]
        if origin is dict:
            return [{"type": "object", "additionalProperties": _any(*self._options(arguments[1], facts))}]
        return self._scalar(kind, facts)

    @staticmethod
    def _scalar(kind: Any, facts: Setting) -> list[dict[str, Any]]:
        if kind in (int, float):
            bounds = {
                "exclusiveMinimum": facts.gt,
                "minimum": facts.ge,
                "exclusiveMaximum": facts.lt,
                "maximum": facts.le,
            }
            number: dict[str, Any] = {"type": "integer" if kind is int else "number"}
            number |= {key: value for key, value in bounds.items() if value is not None}
            return [number, {"type": "string"}] if facts.unit else [number]
        if kind is str:
            return [{"type": "string"} | ({"minLength": facts.min_length} if facts.min_length else {})]
        if kind is Path:
            return [{"type": "string", "minLength": 1}]
        return {bool: [{"type": "boolean"}], types.NoneType: [{"type": "null"}]}.get(kind, [{}])
