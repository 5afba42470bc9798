"""A plan: read, checked, filled; and what it is made of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nlpkernel import __version__
from nlpkernel.builtin.policies import NonFinite
from nlpkernel.errors import Place, PlanError, PluginError, Problem
from nlpkernel.hookspecs import POINTS, SLOTS
from nlpkernel.plan.codes import (
    CYCLE,
    DEPTH,
    EXTENDS,
    FORMAT,
    NO_YAML,
    NOT_UTF8,
    REFUSED,
    SYNTAX,
    UNREADABLE,
)
from nlpkernel.plan.environment import escape_references
from nlpkernel.plan.load import load_file, load_mapping
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.scalars import seen
from nlpkernel.plan.structure import FAILED, Placed, Structuring
from nlpkernel.plan.train import Train
from nlpkernel.plan.writer import write_toml
from nlpkernel.plugins.catalog import Catalog, Found
from nlpkernel.plugins.hooks import conflicts
from nlpkernel.plugins.suggest import hint
from nlpkernel.runs import LATEST

#: Sections that may be left out, and the kernel's own component that stands there then.
_LEFT_OUT = {"communicator": "single", "precision": "plain"}
_OPTIONAL = {"checkpoint", "monitor", *_LEFT_OUT}
#: Problems after which some of the plan is not known.
_PARTLY_READ = {SYNTAX, UNREADABLE, NOT_UTF8, FORMAT, CYCLE, NO_YAML, REFUSED, EXTENDS, DEPTH}


@attrs.define
class Composition:
    """The fresh components of one run, in plan order."""

    train: Train
    placed: list[Placed]

    def slot(self, name: str) -> Placed:
        """The component of a slot that holds exactly one."""
        return next(placed for placed in self.placed if placed.address == name)

    def has(self, name: str) -> bool:
        """Whether the plan fills a slot."""
        return any(placed.address == name for placed in self.placed)


class Plan:
    """Everything about a run. Make one with `Plan.load` or `Plan.of`; it is checked whole when it is made.

    name: the run's name. train: its section [train]. filled: every setting with its value and origin. path: the file
    that it came from, or None.
    """

    def __init__(
        self,
        root: Node,
        *,
        path: Path | None,
        catalog: Catalog | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        self.root = root
        self.path = path
        self.catalog = catalog or Catalog()
        # What could be read is checked whatever else is wrong, so that the user sees everything in one go.
        found, self.filled, composition = self._structure()
        if problems or found:
            raise _error([*problems, *_beside(problems, found)])
        assert composition is not None
        self.name = str(self.filled.value["name"].value)
        self.train = composition.train
        self._first: Composition | None = composition

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = (), *, catalog: Catalog | None = None) -> Plan:
        """Read a plan from a file. Raise PlanError with every mistake, or PluginError where only plugins are wrong."""
        root, problems = load_file(Path(path), overrides=overrides)
        return cls(root, path=Path(path), catalog=catalog, problems=problems)

    @classmethod
    def of(
        cls,
        value: Mapping[str, Any],
        overrides: Sequence[str] = (),
        *,
        base: str | Path = ".",
        catalog: Catalog | None = None,
    ) -> Plan:
        """Make a plan from plain values; relative paths start from `base`."""
        root, problems = load_mapping(value, base=Path(base), overrides=overrides)
        return cls(root, path=None, catalog=catalog, problems=problems)

    def compose(self) -> Composition:
        """Fresh components: each run gets its own, so that two runs of one plan share nothing."""
        first, self._first = self._first, None
        if first is not None:
            return first
        composition = self._structure()[2]
        assert composition is not None, "a plan is checked when it is made"
        return composition

    def text(self, *, origins: bool = False) -> str:
        """The filled plan as TOML; with `origins`, each value with a comment that says where it came from.

        What came from the environment is written as its reference, so no secret is in it.
        """
        comments = {
            path: node.origin
            for path, node in self.filled.walk()
            if not node.is_table and not path.endswith("]")
        }
        return write_toml(written(self.filled), comments.get if origins else lambda path: None)

    def _structure(self) -> tuple[list[Problem], Node, Composition | None]:
        work = Structuring(self.catalog)
        table: dict[str, Node] = dict(self.root.value)
        known = ("name", "train", *SLOTS)
        for key, node in table.items():
            if key not in known:
                place, tip = node.key_place or node.place, hint(key, ("extends", *known))
                work.say("NK101", f"a plan has no section {key!r}", place, None, tip)
        filled: dict[str, Node] = {"name": self._named(work, table.get("name"))}
        empty = Node({}, self.root.place, origin="default", base=self.root.base)
        train, filled["train"] = work.settings(Train, table.get("train", empty), "train", "nlpkernel")
        for slot in SLOTS:
            self._slot(work, slot, table.get(slot), filled)
        if train is not FAILED:
            self._length(work, train, table.get("train"))
        root = attrs.evolve(self.root, value=filled)
        work.problems += conflicts(
            (each.component, f"{each.address} ({each.found.owner})") for each in work.placed
        )
        if work.problems or train is FAILED:
            return work.problems, root, None
        return [], root, Composition(train, [*work.placed, _on_nan(train)])

    def _slot(self, work: Structuring, slot: str, node: Node | None, filled: dict[str, Node]) -> None:
        if node is None and slot not in _OPTIONAL:
            tip = hint("", self.catalog.names(slot))
            work.say("NK109", f"the plan has no section [{slot}]", _whole(self.root), None, tip)
        elif node is None and slot in _LEFT_OUT:
            default = Node({"use": Node(_LEFT_OUT[slot], self.root.place, origin="default")}, self.root.place)
            _, filled[slot] = work.component(slot, default, slot)
        elif node is not None and POINTS[slot].many:
            if not isinstance(node.value, list):
                place = node.key_place or node.place
                work.say("NK103", f"{slot} is a list of tables", place, None, f"write [[{slot}]] in TOML")
                return
            tables = [
                work.component(slot, each, f"{slot}[{index}]")[1] for index, each in enumerate(node.value)
            ]
            filled[slot] = attrs.evolve(node, value=tables)
        elif node is not None:
            _, filled[slot] = work.component(slot, node, slot)

    def _named(self, work: Structuring, node: Node | None) -> Node:
        if node is None:
            # A file's name is text whatever the locale makes of it.
            name = os.fsencode(self.path.stem).decode("utf-8", "replace") if self.path is not None else "run"
            node = Node(name, _whole(self.root), origin="default")
        name = node.value
        if not isinstance(name, str) or not _is_folder_name(name):
            wrong = "name must be text that can name a folder, of at most 200 bytes"
            work.say("NK103", f"{wrong}, not {seen(node)}", node.place, None)
        elif name == LATEST:
            work.say("NK105", f"name cannot be {LATEST!r}, which is the newest run", node.place, None)
        return node

    def _length(self, work: Structuring, train: Train, node: Node | None) -> None:
        if train.steps is None and train.epochs is None and train.tokens is None:
            place = (node.key_place or node.place) if node else _whole(self.root)
            message = "train: the length of the run is missing"
            work.say("NK102", message, place, "nlpkernel", "write one of steps, epochs, tokens")


def _is_folder_name(name: str) -> bool:
    return (
        name.isprintable()
        and name.strip(" .") != ""
        and not any(c in name for c in "/\\")
        and len(name.encode()) <= 200
    )


def _on_nan(train: Train) -> Placed:
    """The policy behind `train.on_nan`: a component like any other, so that the engine has no case for it."""
    found = Found(
        NonFinite, "non-finite", "policy", "nlpkernel.builtin.policies:NonFinite", "nlpkernel", __version__
    )
    return Placed("train.on_nan", NonFinite(action=train.on_nan), found)


def written(node: Node) -> Any:
    """Plain values as they may be written down: references instead of what they stand for, nothing for null."""
    if node.reference is not None:
        return node.reference
    if isinstance(node.value, str):
        return escape_references(node.value)
    if isinstance(node.value, dict):
        return {key: written(each) for key, each in node.value.items() if each.value is not None}
    if isinstance(node.value, list):
        return [written(each) for each in node.value]
    return node.value


def _whole(node: Node) -> Place:
    return Place(node.place.file)


def _beside(problems: Sequence[Problem], found: Sequence[Problem]) -> list[Problem]:
    """What to say of the checked part of a plan beside the problems with reading it: what was not read may hold what
    seems to be missing, and a place is complained of once."""
    partly = any(problem.code in _PARTLY_READ for problem in problems)
    said = {problem.place for problem in problems if problem.place and problem.place.line}
    missing = ("NK102", "NK109", "NK112") if partly else ()
    return [each for each in found if each.code not in missing and each.place not in said]


def _error(problems: Sequence[Problem]) -> PlanError | PluginError:
    unique = list(dict.fromkeys(problems))
    unique.sort(
        key=lambda problem: (
            (problem.place.file, problem.place.line, problem.place.column) if problem.place else ("", 0, 0)
        )
    )
    plugins_only = all(problem.code.startswith(("NK05", "NK06")) for problem in unique)
    return (PluginError if plugins_only else PlanError)(unique)
