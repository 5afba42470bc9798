"""What `plugins show` says of one component: its settings, presets and hooks, from its light module alone."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from nlpkernel.components import PRESETS, FieldFacts, Setting, fields_of, is_settings
from nlpkernel.errors import PluginError, Problem
from nlpkernel.hookspecs import KIND
from nlpkernel.plugins.catalog import Catalog, Found
from nlpkernel.plugins.hooks import SPECS, problems_of
from nlpkernel.plugins.scan import Offer

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    Any: "anything",
    type(None): "null",
}
_UNITS = {"bytes": '"200MB"', "seconds": '"5m"', "count": '"300M"'}
_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


@attrs.frozen
class SettingLine:
    """One setting. `name` is dotted where it stands in a table; `default` is as a plan writes it, None where
    the plan must give the setting; `unit` and `point` are None where they do not apply."""

    name: str
    type: str
    default: str | None
    range: str
    unit: str | None
    help: str
    point: str | None


@attrs.frozen
class HookLine:
    """One hook that a component implements. `kind` is the hook's kind, or "unknown" where there is no such
    hook."""

    name: str
    kind: str
    help: str


@attrs.frozen
class Description:
    """All that can be said of a component without making one."""

    name: str
    point: str
    target: str
    distribution: str
    release: str
    doc: str
    settings: tuple[SettingLine, ...]
    presets: Mapping[str, Mapping[str, Any]]
    hooks: tuple[HookLine, ...]
    problems: tuple[str, ...]


def describe(offer: Offer) -> Description:
    """Import the module of one component and describe it. Raise PluginError where it cannot be loaded."""
    return describe_found(load(Catalog([offer]), offer.point, offer.name))


def load(catalog: Catalog, point: str, use: str, base: Path | None = None) -> Found:
    """The component class that `use` means at `point`; what its module prints goes to stderr. Raise
    PluginError."""
    with redirect_stdout(sys.stderr):
        found = catalog.resolve(point, use, base=base, place=None)
    if isinstance(found, Problem):
        raise PluginError(found)
    return found


def describe_found(found: Found) -> Description:
    """Describe a component class that is loaded. Raise PluginError where the type of a setting does not
    resolve.

    Of a local component shown without its point nobody can say which hooks it needs.
    """
    try:
        settings = tuple(setting_lines(found.cls))
    except TypeError as error:
        raise PluginError(Problem(code="NK053", message=str(error), owner=found.owner)) from error
    return Description(
        name=found.use,
        point=found.point,
        target=found.target,
        distribution=found.distribution,
        release=found.release,
        doc=inspect.getdoc(found.cls) or "",
        settings=settings,
        presets=dict(getattr(found.cls, PRESETS, {})),
        hooks=tuple(_hooks(found.cls)),
        problems=tuple(map(str, problems_of(found, None))) if found.point else (),
    )


def setting_lines(cls: type, prefix: str = "") -> Iterator[SettingLine]:
    """The settings of a component or settings class, those of nested tables after the table itself."""
    for field in fields_of(cls):
        facts = field.facts
        yield SettingLine(
            name=prefix + field.name,
            type=_component_words(facts) if facts.point else type_words(_given(field)),
            default=None if field.required else _default_words(field),
            range=range_words(facts),
            unit=facts.unit,
            help=facts.help,
            point=facts.point,
        )
        table = _table_of(field.type)
        if table is not None:
            yield from setting_lines(table, f"{prefix}{field.name}.")


def points_of(cls: type) -> set[str]:
    """The extension points that the settings of a class open, those of nested tables with them."""
    points: set[str] = set()
    for field in fields_of(cls):
        table = _table_of(field.type)
        points |= {field.facts.point} if field.facts.point else points_of(table) if table else set()
    return points


def type_words(kind: Any) -> str:
    """A type as a person reads it: "list of whole number", '"a" or "b"', "number or null"."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(plan_words(option) for option in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(type_words(option) for option in arguments)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"[{', '.join(map(type_words, arguments))}]"
    if origin in (list, tuple, set, frozenset):
        return f"list of {type_words(arguments[0])}"
    if origin is dict:
        return f"table of {type_words(arguments[1])}"
    if is_settings(kind):
        return "table"
    return getattr(kind, "__name__", str(kind))


def range_words(facts: Setting) -> str:
    """The bounds of a setting: "> 0, <= 1", "at least 2 long"; empty where there is none."""
    bounds = [(sign, getattr(facts, name)) for name, sign in _BOUNDS]
    words = [f"{sign} {_number(bound)}" for sign, bound in bounds if bound is not None]
    if facts.min_length is not None:
        words.append(f"at least {facts.min_length} long")
    if facts.unit is not None:
        words.append(f"{facts.unit}, or text like {_UNITS[facts.unit]}")
    if facts.secret:
        words.append("secret: only ${NAME}")
    return ", ".join(words)


def plan_words(value: Any) -> str:
    """A value as a TOML plan writes it; None, which TOML has not, as "left out"."""
    if value is None:
        return "left out"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {plan_words(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(map(plan_words, value))}]"
    if attrs.has(type(value)):
        return plan_words(attrs.asdict(value, recurse=False))
    text = str(value)
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


def _given(field: FieldFacts) -> Any:
    """The type of what a plan writes, if it writes the setting: without the None of one that may be left out."""
    if field.default is not None or get_origin(field.type) not in (Union, types.UnionType):
        return field.type
    options = tuple(option for option in get_args(field.type) if option is not type(None))
    return Union[options]  # noqa: UP007


def _component_words(facts: Setting) -> str:
    return f"list of {facts.point} components" if facts.many else f"{facts.point} component"


def _default_words(field: FieldFacts) -> str:
    # The settings of a table are listed one by one, with their own defaults.
    return "" if is_settings(type(field.default)) else plan_words(field.default)


def _table_of(kind: Any) -> type | None:
    """The settings class in a type, if there is one: `Table`, `Table | None`, `list[Table]`, `dict[str,
    Table]`."""
    if is_settings(kind):
        return kind  # type: ignore[no-any-return]
    return next((table for table in map(_table_of, get_args(kind)) if table is not None), None)


def _number(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() and abs(bound) < 1e6 else f"{bound:g}"


def _hooks(cls: type) -> Iterator[HookLine]:
    for name in dir(cls):
        method = getattr(cls, name, None)
        if not callable(method) or getattr(method, "nlpkernel_impl", None) is None:
            continue
        spec = SPECS.get(name)
        if spec is None:
            yield HookLine(name, "unknown", "")
        else:
            yield HookLine(name, getattr(spec, KIND), _sentence(inspect.getdoc(spec) or ""))


def _sentence(doc: str) -> str:
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".") + "." if paragraph else ""
