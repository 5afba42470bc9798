"""The tables of a TOML document while it is read: which key and which header may follow which."""

from __future__ import annotations

import re
from typing import Literal

import attrs

from nlpkernel.plan.codes import DUPLICATE
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.source import Source, shown

#: One part of a dotted key, and its offset.
Part = tuple[str, int]

_BARE = re.compile(r"[A-Za-z0-9_-]+")

_Kind = Literal["implicit", "header", "dotted", "array"]


@attrs.define(eq=False)
class _Open:
    """A table or a list of tables that can still be added to, and how it came to be.

    implicit: by a longer header. header: by its own. dotted: by dotted keys in one section, where alone more of them
    may follow. array: by [[headers]].
    """

    node: Node
    kind: _Kind
    section: int


class Tables:
    """The tree of a document. What a value made (an inline table, an array) cannot be added to afterwards."""

    def __init__(self, source: Source, root: Node) -> None:
        self.root = root
        self._source = source
        # By identity of the node. An entry holds its node, so that no identity is used twice.
        self._open: dict[int, _Open] = {}
        self._section = 0
        self._sections = 0
        # Where a header stands that names a table for the second time; -1 in other sections.
        self._repeated = -1

    def new_section(self) -> int:
        """Begin a section, or an inline table, which has dotted keys of its own. Returns what `end_section` takes."""
        outer = self._section
        self._sections += 1
        self._section = self._sections
        return outer

    def end_section(self, outer: int) -> None:
        """Go back from an inline table to the section that it stands in."""
        self._section = outer

    def enter(self, keys: list[Part], many: bool, start: int) -> Node:
        """The table that the header at `start` names, made where it is not there. Keys below a header that clashes
        with something else go to a table outside the tree."""
        self._repeated = -1
        table = self.root
        for depth, (name, offset) in enumerate(keys[:-1], 1):
            node: Node | None = table.value.get(name)
            if node is None:
                node = self._make(table, name, offset, start, {}, "implicit")
            elif id(node) not in self._open:
                return self._clash(keys[:depth], start, node)
            table = node.value[-1] if self._open[id(node)].kind == "array" else node
        return self._enter_list(table, keys, start) if many else self._enter_table(table, keys, start)

    def _enter_list(self, table: Node, keys: list[Part], start: int) -> Node:
        name, offset = keys[-1]
        node: Node | None = table.value.get(name)
        if node is None:
            node = self._make(table, name, offset, start, [], "array")
        state = self._open.get(id(node))
        if state is None or state.kind != "array":
            hint = f"a list of tables has [[{_dotted(keys)}]] before each of them"
            return self._clash(keys, start, node, hint if node.is_table else None)
        item = Node({}, self._source.place(start), self._source.place(offset))
        node.value.append(item)
        self._open[id(item)] = _Open(item, "header", self._section)
        return item

    def _enter_table(self, table: Node, keys: list[Part], start: int) -> Node:
        name, offset = keys[-1]
        node: Node | None = table.value.get(name)
        if node is None:
            return self._make(table, name, offset, start, {}, "header")
        state = self._open.get(id(node))
        if state is None:
            return self._clash(keys, start, node)
        if state.kind == "array":
            return self._clash(keys, start, node, f"write [[{_dotted(keys)}]] to add an entry")
        if state.kind == "implicit":
            state.kind = "header"
            node.place, node.key_place = self._source.place(start), self._source.place(offset)
            return node
        self._source.note(
            start,
            f"the table [{_dotted(keys)}] is written twice; the first is at {node.place}",
            "join the two",
            DUPLICATE,
        )
        # Its keys are read into the first one, where those that are there already are no further news.
        self._repeated = start
        return node

    def assign(self, table: Node, keys: list[Part], value: Node) -> None:
        """Put a value under a dotted key of `table`."""
        for depth, (name, offset) in enumerate(keys[:-1], 1):
            node: Node | None = table.value.get(name)
            if node is None:
                node = self._make(table, name, offset, offset, {}, "dotted")
            state = self._open.get(id(node))
            if (
                state is None
                or state.kind in ("header", "array")
                or (state.kind == "dotted" and state.section != self._section)
            ):
                if not self._of_first(node):
                    self._clash(keys[:depth], offset, node)
                return
            state.kind, state.section = "dotted", self._section
            table = node
        name, offset = keys[-1]
        value.key_place = self._source.place(offset)
        first: Node = table.value.setdefault(name, value)
        if first is not value and not self._of_first(first):
            self._source.note(
                offset,
                f"the key {shown(_dotted(keys))} is written twice; the first is at {first.key_place}",
                "remove one of them",
                DUPLICATE,
            )

    def _make(
        self,
        table: Node,
        name: str,
        offset: int,
        start: int,
        value: dict[str, Node] | list[Node],
        kind: _Kind,
    ) -> Node:
        node = Node(value, self._source.place(start), self._source.place(offset))
        table.value[name] = node
        self._open[id(node)] = _Open(node, kind, self._section)
        return node

    def _of_first(self, node: Node) -> bool:
        """Whether a node was there before the table that is being read was written again."""
        if self._repeated < 0 or node.key_place is None:
            return False
        again = self._source.place(self._repeated)
        return (node.key_place.line, node.key_place.column) < (again.line, again.column)

    def _clash(self, keys: list[Part], offset: int, node: Node, hint: str | None = None) -> Node:
        state = self._open.get(id(node))
        kind = "a value" if state is None else "a list of tables" if state.kind == "array" else "a table"
        self._source.note(
            offset, f"{shown(_dotted(keys))} is {kind} already, at {node.key_place}", hint, DUPLICATE
        )
        return Node({}, self._source.place(offset))


def _dotted(keys: list[Part]) -> str:
    """A key as it is written."""
    return ".".join(name if _BARE.fullmatch(name) else f'"{name}"' for name, _ in keys)
