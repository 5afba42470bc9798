"""Overrides of single values: `model.preset=nano`, `monitor[0].use=console`, `monitor[+].use=jsonl`.

All overrides together are one layer over the plan, so their order matters only where two set the same value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from nlpkernel.errors import Place, Problem
from nlpkernel.plan.codes import OVERRIDE
from nlpkernel.plan.environment import fill, typed
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.source import DEEPEST, Slip
from nlpkernel.plan.toml_scalars import read_line_text

#: The origin of every value that an override sets.
ORIGIN = "--set"

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_INDEX = re.compile(r"\[(?:([0-9]{1,6})|\+)\]")

_FORM = "write key.path=value, monitor[0].use=... or monitor[+].use=..."

#: A key, an index, or None for a new entry of a list.
_Step = str | int | None


def apply_overrides(
    root: Node, overrides: Sequence[str], base: Path, environ: Mapping[str, str]
) -> list[Problem]:
    """Set values below `root`, in place; `base` is where relative paths in them start from.

    Returns what is wrong with the overrides. One that cannot be applied changes nothing.
    """
    return _Overrides(root, base, environ).apply(overrides)


class _Wrong(Exception):
    """An override that cannot be applied, and what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class _Overrides:
    def __init__(self, root: Node, base: Path, environ: Mapping[str, str]) -> None:
        self.root = root
        self.base = base
        self.environ = environ
        # Tables whose `use` an override changed, with the one of the layers below.
        self.below: list[tuple[Node, Node]] = []

    def apply(self, overrides: Sequence[str]) -> list[Problem]:
        problems = []
        for text in overrides:
            try:
                problems += self.one(text)
            except _Wrong as wrong:
                message = f"the override {text!r}: {wrong.message}"
                problems.append(Problem(code=OVERRIDE, message=message, hint=wrong.hint))
        for table, use in self.below:
            if table.value["use"].plain() != use.plain():
                _keep_overrides(table)
        return problems

    def one(self, text: str) -> list[Problem]:
        path, end = _read_path(text)
        if path[0] == "extends":
            raise _Wrong("it comes too late to extend another plan", "write extends in the plan")
        place = Place(f"{ORIGIN} {text[:end].strip()}")
        like = Node(None, place, place, origin=ORIGIN, base=self.base)
        value = typed(text[end + 1 :].strip(), like)
        problems = [problem for _, problem in fill(value, self.environ)]
        self.laid(self.root, path, 0, value)
        return problems

    def laid(self, node: Node | None, path: list[_Step], depth: int, value: Node) -> Node:
        """What stands in the place of `node` once `value` is set below it. Nothing is changed before the whole path has
        been gone."""
        if depth == len(path):
            return self.over(node, value)
        step = path[depth]
        if node is None or node.value is None:
            fresh: dict[str, Node] | list[Node] = {} if isinstance(step, str) else []
            node = Node(fresh, value.place, value.place, origin=ORIGIN, base=self.base)
        if isinstance(step, str):
            if not node.is_table:
                raise _blocked(path[:depth], node, "a table")
            self.put(node, step, self.laid(node.value.get(step), path, depth + 1, value))
            return node
        if not isinstance(node.value, list):
            raise _blocked(path[:depth], node, "a list")
        if step is None:
            node.value.append(self.laid(None, path, depth + 1, value))
        elif step < len(node.value):
            node.value[step] = self.laid(node.value[step], path, depth + 1, value)
        else:
            count = f"{len(node.value)} {'entry' if len(node.value) == 1 else 'entries'}"
            raise _Wrong(f"{_dotted(path[:depth])} has {count}, counted from 0", "[+] appends one")
        return node

    def over(self, below: Node | None, value: Node) -> Node:
        if below is None or not below.is_table or not value.is_table:
            return value
        for key, node in value.value.items():
            self.put(below, key, self.over(below.value.get(key), node))
        return below

    def put(self, table: Node, key: str, node: Node) -> None:
        old: Node | None = table.value.get(key)
        if key == "use" and old is not None and old.origin != ORIGIN:
            self.below.append((table, old))
        table.value[key] = node


def _keep_overrides(node: Node) -> bool:
    """Take away what overrides did not set. Whether anything is left."""
    if node.origin == ORIGIN:
        return True
    if node.is_table:
        node.value = {key: each for key, each in node.value.items() if _keep_overrides(each)}
    elif isinstance(node.value, list):
        node.value = [each for each in node.value if _keep_overrides(each)]
    else:
        return False
    return bool(node.value)


def _read_path(text: str) -> tuple[list[_Step], int]:
    """The steps to a value, and where the '=' behind them stands."""
    path: list[_Step] = []
    pos = len(text) - len(text.lstrip())
    while True:
        bare = _BARE_KEY.match(text, pos)
        if bare:
            path.append(bare[0])
            pos = bare.end()
        elif text.startswith(("'", '"'), pos):
            try:
                key, pos = read_line_text(text, pos)
            except Slip as slip:
                raise _Wrong(slip.message, slip.hint) from None
            path.append(key)
        else:
            raise _Wrong(
                f"expected a key, found {text[pos : pos + 1]!r}" if text[pos:] else "a key is missing", _FORM
            )
        while index := _INDEX.match(text, pos):
            path.append(int(index[1]) if index[1] else None)
            pos = index.end()
        if not text.startswith(".", pos):
            break
        pos += 1
    end = pos + len(text[pos:]) - len(text[pos:].lstrip())
    if not text.startswith("=", end):
        found = f", found {text[end]!r}" if text[end:] else ""
        raise _Wrong(f"expected '=' after {text[:pos].strip()}{found}", _FORM)
    if len(path) > DEEPEST:
        raise _Wrong(f"the path has more than {DEEPEST} steps")
    return path, end


def _blocked(path: list[_Step], node: Node, wanted: str) -> _Wrong:
    # What came from the environment may be a secret.
    value = node.value if node.reference is None else node.reference
    kind = (
        "a table" if node.is_table else "a list" if isinstance(node.value, list) else f"the value {value!r}"
    )
    hint = "its entries are [0], [1], ..., and [+] appends one" if isinstance(node.value, list) else None
    return _Wrong(f"{_dotted(path)} is {kind} and not {wanted}", hint)


def _dotted(path: list[_Step]) -> str:
    text = ""
    for step in path:
        text += f".{step}" if isinstance(step, str) else "[+]" if step is None else f"[{step}]"
    return text.removeprefix(".")
