"""From nodes to components: every key checked against the component's own class, before anything is constructed.

All problems are collected; nothing is converted silently. `"12"` is not 12, 2.9 is not 2, true is not 1.0.
The same pass makes the *filled* plan: every setting with its value and where it came from.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import attrs

from nlpkernel.components import PRESETS, FieldFacts, Setting, fields_of, is_settings
from nlpkernel.errors import Place, Problem
from nlpkernel.plan.merge import merged
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.scalars import absolute, name_of, scalar, seen, text_of
from nlpkernel.plugins.catalog import Catalog, Found, where
from nlpkernel.plugins.hooks import problems_of
from nlpkernel.plugins.suggest import hint


class _Failed(Enum):
    """Stands for a value that has problems, so that the rest can still be looked at."""

    FAILED = 0


FAILED = _Failed.FAILED
_UNIONS = (Union, types.UnionType)


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
            node = attrs.evolve(node, value={"use": attrs.evolve(node, key_place=None)}, reference=None)
        if not node.is_table:
            self.say("NK103", f"{address} must be a table with `use`, not {seen(node)}", node.place, None)
            return FAILED, node
        use = node.value.get("use")
        if use is None or not isinstance(use.value, str):
            what = "has no `use`" if use is None else f"needs text for `use`, not {seen(use)}"
            self.say(
                "NK112", f"{address} {what}", _table_place(node), None, hint("", self.catalog.names(point))
            )
            return FAILED, node
        found = self.catalog.resolve(point, use.value, base=use.base, place=use.place)
        if isinstance(found, Problem):
            self.problems.append(found)
            return FAILED, node
        self.problems += problems_of(found, use.place)
        if found.local:
            # The filled plan lies in another folder.
            use = attrs.evolve(use, value=found.target, reference=None)
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
            self.say("NK103", f"{address} must be a table, not {seen(node)}", node.place, owner)
            return FAILED, node
        before = len(self.problems)
        fields = {field.name: field for field in fields_of(cls)}
        extra = extra or {}
        for key, child in node.value.items():
            if key not in fields and key not in extra:
                self.say(
                    "NK101",
                    f"{address}: there is no setting {key!r}",
                    child.key_place or child.place,
                    owner,
                    hint(key, fields),
                )
        preset = self._preset(cls, node, fields, owner)
        filled = dict(extra)
        values: dict[str, Any] = {}
        for name, field in fields.items():
            path = f"{address}.{name}"
            given = self._given(field, node, preset.get(name), path, owner)
            if given is None:
                continue
            start = len(self.problems)
            values[name], filled[name] = self._field(field, given, path, owner)
            if name not in node.value:
                self.problems[start:] = map(_not_written, self.problems[start:])
        if len(self.problems) > before:
            return FAILED, attrs.evolve(node, value=filled)
        return self._made(cls, values, node, address, owner), attrs.evolve(node, value=filled)

    def _given(
        self, field: FieldFacts, table: Node, preset: Node | None, path: str, owner: str | None
    ) -> Node | None:
        """What the plan writes, over what the preset gives, over the default. None where that is a problem."""
        written: Node | None = table.value.get(field.name)
        below = None if field.required else default_node(_uses(field), table)
        if preset is not None:
            below = merged(below, preset) if below is not None and _is_group(field.type) else preset
        if written is None:
            if below is None:
                tip = f"{field.name}: {field.facts.help}" if field.facts.help else None
                self.say("NK102", f"{path} is missing", _table_place(table), owner, tip)
            return below
        if below is None or below.value is not None:
            if written.value is None:
                # The filled plan is TOML, which has no null.
                stands = "it has no default" if below is None else f"it is {text_of(below.plain())} then"
                tip = f"null means that a setting is left out, and {stands}"
                self.say("NK103", f"{path} cannot be null", written.place, owner, tip)
                return None
            if below is not None and _is_group(field.type):
                return merged(below, written)
        return written

    def _field(self, field: FieldFacts, given: Node, path: str, owner: str | None) -> tuple[Any, Node]:
        if field.facts.point is not None:
            return self._extension(field.facts, given, path)
        if field.facts.secret and any(_in_the_open(each) for _, each in given.walk()):
            tip = 'put it into the environment and write "${NAME}", without a fallback'
            self.say("NK110", f"{path} is a secret and stands in the plan", given.place, owner, tip)
            return FAILED, given
        return self.value(field.type, given, path, field.facts, owner)

    def _extension(self, facts: Setting, given: Node, path: str) -> tuple[Any, Node]:
        point = facts.point or ""
        if not facts.many:
            return (None, given) if given.value is None else self.component(point, given, path)
        if not isinstance(given.value, list):
            tip = f"write [[{path}]] in TOML"
            self.say("NK103", f"{path} must be a list of tables, not {seen(given)}", given.place, None, tip)
            return FAILED, given
        pairs = [self.component(point, each, f"{path}[{index}]") for index, each in enumerate(given.value)]
        return [value for value, _ in pairs], attrs.evolve(given, value=[filled for _, filled in pairs])

    def _preset(
        self, cls: type, node: Node, fields: Mapping[str, FieldFacts], owner: str | None
    ) -> dict[str, Node]:
        """The nodes that a preset gives, by setting."""
        presets: Mapping[str, Mapping[str, Any]] = getattr(cls, PRESETS, {})
        if not presets:
            return {}
        child = node.value.get("preset")
        name = fields["preset"].default if child is None else child.value
        if not isinstance(name, str):
            return {}
        place = child.place if child else _table_place(node)
        if name not in presets:
            self.say("NK111", f"there is no preset {name!r}", place, owner, hint(name, presets))
            name = next(iter(presets))  # Any of them gives what would seem to be missing.
        under = attrs.evolve(node, place=place, key_place=None)
        return {key: default_node(value, under, f"preset {name}") for key, value in presets[name].items()}

    def _made(self, cls: type, values: Mapping[str, Any], node: Node, address: str, owner: str | None) -> Any:
        """The instance, if its own checks have nothing against it."""
        try:
            instance = cls(**values)
            check = getattr(instance, "check_settings", None)
            said = [(str(name), str(message)) for name, message in check()] if check else []
        except Exception as error:  # noqa: BLE001 - a component may fail in any way; it is named
            message = f"{address} cannot be made: {type(error).__name__}: {error}{where(error)}"
            self.say("NK060", message, _table_place(node), owner)
            return FAILED
        for name, message in said:
            child = node.value.get(name)
            self.say("NK108", f"{address}: {message}", child.place if child else _table_place(node), owner)
        return FAILED if said else instance

    # -- values -------------------------------------------------------------------------------------------------

    def value(self, kind: Any, node: Node, path: str, facts: Setting, owner: str | None) -> tuple[Any, Node]:
        """A value of type `kind`, and its node filled (units made numbers, paths made absolute)."""
        origin = get_origin(kind)
        if kind is Any:
            nulls = [at for at, each in node.walk(path) if each.value is None and each is not node]
            for at in nulls:
                self.say("NK103", f"{at} cannot be null", node.place, owner)
            return FAILED if nulls else node.plain(), node
        if origin in _UNIONS:
            return self._union(kind, node, path, facts, owner)
        if is_settings(kind):
            return self.settings(kind, node, path, owner)
        if origin in (list, tuple):
            return self._sequence(kind, origin, node, path, facts, owner)
        if origin is dict:
            return self._mapping(kind, node, path, facts, owner)
        message, result = scalar(kind, node, facts)
        if message is not None:
            code, text, tip = message
            self.say(code, f"{path}{text}", node.place, owner, tip)
            return FAILED, node
        return absolute(node, result) if kind is Path else (result, attrs.evolve(node, value=result))

    def _union(self, kind: Any, node: Node, path: str, facts: Setting, owner: str | None) -> tuple[Any, Node]:
        options = [option for option in get_args(kind) if option is not types.NoneType]
        if node.value is None and len(options) < len(get_args(kind)):
            return None, node
        if len(options) == 1:
            return self.value(options[0], node, path, facts, owner)
        tries: list[list[Problem]] = []
        for option in options:
            attempt = Structuring(self.catalog)
            value, filled = attempt.value(option, node, path, facts, owner)
            if not attempt.problems:
                self.placed += attempt.placed
                return value, filled
            tries.append(attempt.problems)
        # A value of the right kind and out of range says more than one of the wrong kind.
        best = min(tries, key=lambda problems: any(problem.code == "NK103" for problem in problems))
        if any(problem.code == "NK103" for problem in best):
            wanted = " or ".join(name_of(option, facts) for option in options)
            tip = next((problem.hint for problems in tries for problem in problems if problem.hint), None)
            self.say("NK103", f"{path} must be {wanted}, not {seen(node)}", node.place, owner, tip)
        else:
            self.problems += best
        return FAILED, node

    def _sequence(
        self, kind: Any, origin: Any, node: Node, path: str, facts: Setting, owner: str | None
    ) -> tuple[Any, Node]:
        if not isinstance(node.value, list):
            tip = None if node.is_table or node.reference else f"write [{text_of(node.value)}]"
            self.say("NK103", f"{path} must be a list, not {seen(node)}", node.place, owner, tip)
            return FAILED, node
        arguments = get_args(kind)
        fixed = origin is tuple and Ellipsis not in arguments
        if fixed and len(node.value) != len(arguments):
            wrong = f"{path} must have {len(arguments)} values, not {len(node.value)}"
            self.say("NK103", wrong, node.place, owner)
            return FAILED, node
        if facts.min_length is not None and len(node.value) < facts.min_length:
            wrong = f"{path} must have at least {facts.min_length} values, not {len(node.value)}"
            self.say("NK104", wrong, node.place, owner)
            return FAILED, node
        inner = attrs.evolve(facts, min_length=None)
        pairs = [
            self._entry(arguments[index] if fixed else arguments[0], each, f"{path}[{index}]", inner, owner)
            for index, each in enumerate(node.value)
        ]
        if any(value is FAILED for value, _ in pairs):
            return FAILED, node
        return origin(value for value, _ in pairs), attrs.evolve(node, value=[filled for _, filled in pairs])

    def _mapping(
        self, kind: Any, node: Node, path: str, facts: Setting, owner: str | None
    ) -> tuple[Any, Node]:
        if not node.is_table:
            self.say("NK103", f"{path} must be a table, not {seen(node)}", node.place, owner)
            return FAILED, node
        _, inner = get_args(kind)
        pairs = {
            key: self._entry(inner, each, f"{path}.{key}", facts, owner) for key, each in node.value.items()
        }
        if any(value is FAILED for value, _ in pairs.values()):
            return FAILED, node
        return (
            {key: value for key, (value, _) in pairs.items()},
            attrs.evolve(node, value={key: filled for key, (_, filled) in pairs.items()}),
        )

    def _entry(self, kind: Any, node: Node, path: str, facts: Setting, owner: str | None) -> tuple[Any, Node]:
        """An entry of a list or a table, which cannot be left out as a setting can."""
        if node.value is not None:
            return self.value(kind, node, path, facts, owner)
        self.say("NK103", f"{path} cannot be null", node.place, owner)
        return FAILED, node


def _not_written(problem: Problem) -> Problem:
    """A problem of a value that the user did not write."""
    tip = problem.hint or "this is what the component has by itself: its author has to mend it"
    return attrs.evolve(problem, hint=tip)


def _is_group(kind: Any) -> bool:
    return is_settings(kind) or (get_origin(kind) in _UNIONS and any(map(is_settings, get_args(kind))))


def _in_the_open(node: Node) -> bool:
    """Whether a value of a secret can be read in the plan: itself, or as the fallback of a reference."""
    if node.value is None or isinstance(node.value, (dict, list)) or node.origin == "default":
        return False
    return node.reference is None or re.search(r":-[^}]", node.reference) is not None


def _table_place(node: Node) -> Place:
    return node.key_place or node.place


def _uses(field: FieldFacts) -> Any:
    """The default of a setting, for an extension point as a table with `use`."""

    def use(default: Any) -> Any:
        return {"use": default} if isinstance(default, str) else default

    if field.facts.point is None:
        return field.default
    return list(map(use, field.default)) if field.facts.many else use(field.default)


def default_node(value: Any, table: Node | None = None, origin: str = "default") -> Node:
    """A node for a value that nobody wrote, in `table`."""
    place, base = (Place("<default>"), None) if table is None else (_table_place(table), table.base)

    def make(value: Any) -> Node:
        if attrs.has(type(value)):
            value = attrs.asdict(value, recurse=True)
        if isinstance(value, Mapping):
            value = {key: make(each) for key, each in value.items()}
        elif isinstance(value, (list, tuple)):
            value = [make(each) for each in value]
        elif isinstance(value, Path):
            value = str(value)
        return Node(value, place, origin=origin, base=base)

    return make(value)
