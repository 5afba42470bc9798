"""From nodes to components: every key checked against the component's own class, before anything is constructed.

All problems are collected; nothing is converted silently. `"12"` is not 12, 2.9 is not 2, true is not 1.0.
The same pass makes the *filled* plan: every setting with its value and where it came from.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from nlpkernel.components import PRESETS, FieldFacts, Setting, fields_of, is_settings
from nlpkernel.errors import Place, Problem
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.units import parse_unit
from nlpkernel.plugins.catalog import Catalog, Found
from nlpkernel.plugins.hooks import problems_of
from nlpkernel.plugins.suggest import hint


class _Failed(Enum):
    """Stands for a value that has problems, so that the rest can still be looked at."""

    FAILED = 0


FAILED = _Failed.FAILED


@attrs.frozen
class Placed:
    """A component at its address in the plan ("optimizer", "optimizer.schedule", "monitor[0]")."""

    address: str
    component: Any
    found: Found


@attrs.define
class Structuring:
    """One pass over a plan: what it found out, and everything that is wrong."""

    catalog: Catalog
    problems: list[Problem] = attrs.field(factory=list)
    placed: list[Placed] = attrs.field(factory=list)

    def say(
        self, code: str, message: str, place: Place | None, owner: str | None, tip: str | None = None
    ) -> None:
        """Record a problem."""
        self.problems.append(Problem(code=code, message=message, place=place, owner=owner, hint=tip))

    # -- components ---------------------------------------------------------------------------------------------

    def component(self, point: str, node: Node, address: str) -> tuple[Any, Node]:
        """The component that a table names with `use`, and the table filled. Registers it and what it holds."""
        if isinstance(node.value, str):
            # A bare name stands for a table with nothing but `use`.
            node = attrs.evolve(node, value={"use": attrs.evolve(node, key_place=None)})
        if not node.is_table:
            self.say(
                "NK103", f"{address} must be a table with `use`, not {_kind(node.value)}", node.place, None
            )
            return FAILED, node
        use = node.value.get("use")
        if use is None or not isinstance(use.value, str):
            what = "has no `use`" if use is None else f"needs text for `use`, not {_kind(use.value)}"
            self.say(
                "NK112", f"{address} {what}", _table_place(node), None, hint("", self.catalog.names(point))
            )
            return FAILED, node
        found = self.catalog.resolve(point, use.value, base=use.base, place=use.place)
        if isinstance(found, Problem):
            self.problems.append(found)
            return FAILED, node
        self.problems += problems_of(found, use.place)
        position = len(self.placed)
        component, filled = self.settings(found.cls, node, address, found.owner, extra={"use": use})
        if component is not FAILED:
            # Before what it holds, so that plan order is the order of reading.
            self.placed.insert(position, Placed(address, component, found))
        return component, filled

    # -- tables of settings -------------------------------------------------------------------------------------

    def settings(
        self, cls: type, node: Node, address: str, owner: str | None, extra: Mapping[str, Node] | None = None
    ) -> tuple[Any, Node]:
        """An instance of `cls` from a table, and the table filled."""
        if not node.is_table:
            self.say("NK103", f"{address} must be a table, not {_kind(node.value)}", node.place, owner)
            return FAILED, node
        before = len(self.problems)
        fields = {field.name: field for field in fields_of(cls)}
        extra = extra or {}
        for key, child in node.value.items():
            if key not in fields and key not in extra:
                self.say(
                    "NK101",
                    f"{_at(address)}there is no setting {key!r}",
                    child.key_place or child.place,
                    owner,
                    hint(key, fields),
                )
        preset = self._preset(cls, node, fields, owner)
        filled = dict(extra)
        values: dict[str, Any] = {}
        for name, field in fields.items():
            path = f"{address}.{name}" if address else name
            child = node.value.get(name) or preset.get(name)
            if child is None and field.required:
                self.say(
                    "NK102",
                    f"{_at(address)}the setting {name!r} is missing",
                    _table_place(node),
                    owner,
                    _help(field),
                )
                continue
            values[name], filled[name] = self._field(field, child, node, path, owner)
        instance: Any = FAILED
        if len(self.problems) == before:
            instance = cls(**values)
            self._together(instance, filled, node, address, owner)
        return (FAILED if len(self.problems) > before else instance), attrs.evolve(node, value=filled)

    def _field(
        self, field: FieldFacts, child: Node | None, table: Node, path: str, owner: str | None
    ) -> tuple[Any, Node]:
        if field.facts.point is not None:
            return self._extension(field, child, table, path)
        if child is not None:
            value, filled = self.value(field.type, child, path, field.facts, owner)
            if field.facts.secret and child.reference is None and value is not None:
                self.say(
                    "NK110",
                    f"{path} is a secret and stands in the plan",
                    child.place,
                    owner,
                    'put it into the environment and write "${NAME}"',
                )
            return value, filled
        return field.default, default_node(field.default, table)

    def _extension(self, field: FieldFacts, child: Node | None, table: Node, path: str) -> tuple[Any, Node]:
        point = field.facts.point or ""
        if child is None:
            if field.default is None:
                return None, default_node(None, table)
            default = field.default if field.facts.many else _use(field.default)
            child = default_node(list(map(_use, default)) if field.facts.many else default, table)
        if not field.facts.many:
            if child.value is None:
                return None, child
            return self.component(point, child, path)
        if not isinstance(child.value, list):
            self.say(
                "NK103",
                f"{path} must be a list of tables, not {_kind(child.value)}",
                child.place,
                None,
                f"write [[{path}]] in TOML",
            )
            return FAILED, child
        pairs = [self.component(point, each, f"{path}[{index}]") for index, each in enumerate(child.value)]
        return [value for value, _ in pairs], attrs.evolve(child, value=[filled for _, filled in pairs])

    def _preset(
        self, cls: type, node: Node, fields: Mapping[str, FieldFacts], owner: str | None
    ) -> dict[str, Node]:
        presets: Mapping[str, Mapping[str, Any]] = getattr(cls, PRESETS, {})
        if not presets or "preset" not in fields:
            return {}
        child = node.value.get("preset")
        name = fields["preset"].default if child is None else child.value
        if name is None:
            return {}
        if name not in presets:
            self.say(
                "NK111",
                f"there is no preset {name!r}",
                child.place if child else _table_place(node),
                owner,
                hint(str(name), presets),
            )
            return {}
        return {
            key: Node(value, child.place if child else node.place, origin=f"preset {name}", base=node.base)
            for key, value in presets[name].items()
        }

    def _together(
        self, instance: Any, filled: Mapping[str, Node], node: Node, address: str, owner: str | None
    ) -> None:
        check = getattr(instance, "check_settings", None)
        for name, message in check() if check else ():
            child = node.value.get(name)
            self.say("NK108", f"{_at(address)}{message}", child.place if child else _table_place(node), owner)

    # -- values -------------------------------------------------------------------------------------------------

    def value(self, kind: Any, node: Node, path: str, facts: Setting, owner: str | None) -> tuple[Any, Node]:
        """A value of type `kind`, and its node filled (units made numbers, paths made absolute)."""
        origin = get_origin(kind)
        if kind is Any:
            return node.plain(), node
        if origin in (Union, types.UnionType):
            return self._union(kind, node, path, facts, owner)
        if is_settings(kind):
            return self.settings(kind, node, path, owner)
        if origin in (list, tuple, set, frozenset):
            return self._sequence(kind, origin, node, path, facts, owner)
        if origin is dict:
            return self._mapping(kind, node, path, facts, owner)
        message, result = _scalar(kind, node, facts)
        if message is not None:
            code, text, tip = message
            self.say(code, f"{path} {text}", node.place, owner, tip)
            return FAILED, node
        return result, attrs.evolve(node, value=str(result) if isinstance(result, Path) else result)

    def _union(self, kind: Any, node: Node, path: str, facts: Setting, owner: str | None) -> tuple[Any, Node]:
        options = get_args(kind)
        if node.value is None and type(None) in options:
            return None, node
        options = tuple(option for option in options if option is not type(None))
        tries: list[list[Problem]] = []
        for option in options:
            attempt = Structuring(self.catalog)
            value, filled = attempt.value(option, node, path, facts, owner)
            if not attempt.problems:
                return value, filled
            tries.append(attempt.problems)
        # A value of the right kind and out of range says more than one of the wrong kind.
        best = min(tries, key=lambda problems: any(problem.code == "NK103" for problem in problems))
        if len(options) > 1 and all(problem.code == "NK103" for problem in best):
            wanted = " or ".join(_name(option, facts) for option in options)
            self.say("NK103", f"{path} must be {wanted}, not {_kind(node.value)}", node.place, owner)
        else:
            self.problems += best
        return FAILED, node

    def _sequence(
        self, kind: Any, origin: Any, node: Node, path: str, facts: Setting, owner: str | None
    ) -> tuple[Any, Node]:
        if not isinstance(node.value, list):
            tip = f"write [{_text(node.value)}]" if not node.is_table else None
            self.say("NK103", f"{path} must be a list, not {_kind(node.value)}", node.place, owner, tip)
            return FAILED, node
        arguments = get_args(kind) or (Any,)
        fixed = origin is tuple and Ellipsis not in arguments
        if fixed and len(node.value) != len(arguments):
            self.say(
                "NK103",
                f"{path} must have {len(arguments)} values, not {len(node.value)}",
                node.place,
                owner,
            )
            return FAILED, node
        if facts.min_length is not None and len(node.value) < facts.min_length:
            self.say(
                "NK104",
                f"{path} must have at least {facts.min_length} values, not {len(node.value)}",
                node.place,
                owner,
            )
            return FAILED, node
        inner = attrs.evolve(facts, min_length=None)
        pairs = [
            self.value(arguments[index] if fixed else arguments[0], each, f"{path}[{index}]", inner, owner)
            for index, each in enumerate(node.value)
        ]
        if any(value is FAILED for value, _ in pairs):
            return FAILED, node
        return origin(value for value, _ in pairs), attrs.evolve(node, value=[filled for _, filled in pairs])

    def _mapping(
        self, kind: Any, node: Node, path: str, facts: Setting, owner: str | None
    ) -> tuple[Any, Node]:
        if not node.is_table:
            self.say("NK103", f"{path} must be a table, not {_kind(node.value)}", node.place, owner)
            return FAILED, node
        _, inner = get_args(kind) or (str, Any)
        pairs = {
            key: self.value(inner, each, f"{path}.{key}", facts, owner) for key, each in node.value.items()
        }
        if any(value is FAILED for value, _ in pairs.values()):
            return FAILED, node
        return (
            {key: value for key, (value, _) in pairs.items()},
            attrs.evolve(node, value={key: filled for key, (_, filled) in pairs.items()}),
        )


_Message = tuple[str, str, str | None]


def _scalar(kind: Any, node: Node, facts: Setting) -> tuple[_Message | None, Any]:
    """A scalar of type `kind`: what is wrong with it, or what it is."""
    value = node.value
    if get_origin(kind) is Literal:
        return _choice(get_args(kind), value)
    if facts.unit is not None and isinstance(value, str) and kind in (int, float):
        try:
            value = parse_unit(value, facts.unit)
        except ValueError as error:
            return ("NK103", f"is {node.value!r}: {error}", None), None
    if kind is bool and isinstance(value, bool):
        return None, value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return _range(value, facts), value
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _range(float(value), facts), float(value)
    if kind is str and isinstance(value, str):
        if facts.min_length is not None and len(value) < facts.min_length:
            return ("NK104", f"must have at least {facts.min_length} characters", None), None
        return None, value
    if kind is Path and isinstance(value, str):
        path = Path(value).expanduser()
        return None, path if path.is_absolute() or node.base is None else node.base.absolute() / path
    if isinstance(kind, type) and kind not in (bool, int, float, str, Path):
        return ("NK103", f"has the type {kind!r}, which no plan can write", None), None
    return ("NK103", f"must be {_name(kind, facts)}, not {_kind(value)}", _slip(kind, node)), None


def _choice(options: tuple[Any, ...], value: Any) -> tuple[_Message | None, Any]:
    for option in options:
        if type(option) is type(value) and option == value:
            return None, option
    listed = ", ".join(_text(option) for option in options)
    if isinstance(value, str):
        texts = [option for option in options if isinstance(option, str)]
        return (
            "NK105",
            f"is {value!r}, which is none of {listed}",
            hint(value, texts) if texts else None,
        ), None
    return ("NK105", f"must be one of {listed}, not {_kind(value)}", None), None


def _range(value: float, facts: Setting) -> _Message | None:
    if not math.isfinite(value):
        return "NK104", f"is {value}, and must be a finite number", None
    wanted = [
        f"{word} {bound:g}"
        for word, bound, good in (
            ("greater than", facts.gt, facts.gt is None or value > facts.gt),
            ("at least", facts.ge, facts.ge is None or value >= facts.ge),
            ("less than", facts.lt, facts.lt is None or value < facts.lt),
            ("at most", facts.le, facts.le is None or value <= facts.le),
        )
        if bound is not None and not good
    ]
    return ("NK104", f"is {_text(value)}, and must be {' and '.join(wanted)}", None) if wanted else None


def _slip(kind: Any, node: Node) -> str | None:
    """What the user probably meant."""
    value = node.value
    if isinstance(value, str) and kind in (int, float, bool):
        if node.bare:
            return None
        try:
            plain = {"true": "true", "false": "false"}[value.lower()] if kind is bool else f"{kind(value)!r}"
        except (KeyError, ValueError):
            return None
        return f"write {value if kind is not bool else plain} without quotes"
    if kind is int and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if kind is str and isinstance(value, (int, float)):
        return f'write "{_text(value)}" with quotes'
    return None


def _name(kind: Any, facts: Setting) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(_text, get_args(kind)))
    names: dict[Any, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        Path: "a path",
    }
    name = names.get(kind) or ("a list" if get_origin(kind) in (list, tuple) else "a table")
    samples = {"bytes": '"200MB"', "seconds": '"5m"', "count": '"300M"'}
    return f"{name} or text like {samples[facts.unit]}" if facts.unit else name


def _kind(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f"the text {value!r}"
    return f"the number {value}" if isinstance(value, (int, float)) else f"{value}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _at(address: str) -> str:
    return f"{address}: " if address else ""


def _help(field: FieldFacts) -> str | None:
    return f"it is the {field.facts.help}" if field.facts.help else None


def _table_place(node: Node) -> Place:
    return node.key_place or node.place


def _use(default: Any) -> Any:
    return {"use": default} if isinstance(default, str) else default


def default_node(value: Any, table: Node | None = None) -> Node:
    """A node for a value that nobody wrote, in `table`."""
    place, base = (Place("<default>"), None) if table is None else (table.place, table.base)

    def make(value: Any) -> Node:
        if attrs.has(type(value)):
            value = attrs.asdict(value, recurse=True)
        if isinstance(value, Mapping):
            value = {key: make(each) for key, each in value.items()}
        elif isinstance(value, (list, tuple, set, frozenset)):
            value = [make(each) for each in value]
        elif isinstance(value, Path):
            value = str(value)
        return Node(value, place, origin="default", base=base)

    return make(value)
