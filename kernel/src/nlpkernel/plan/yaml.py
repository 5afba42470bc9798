"""YAML 1.2 with the place of every key and value.

ruamel.yaml parses; what a scalar means is decided here by the core schema alone, so that `no`, `off` and `12:30` are
text and `1e-4` is a number. The package is imported when a YAML plan is read, and not before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from nlpkernel.errors import Place, Problem
from nlpkernel.plan.codes import KEY, NO_YAML, REFUSED
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.source import DEEPEST, Slip, Source, shown, too_deep

#: Values that aliases may add to a plan, all together.
MOST_ALIASED = 10_000

_CORE = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:null|Null|NULL|~)?")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_RADIX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def read_yaml(text: str, file: str) -> tuple[Node, list[Problem]]:
    """The value of a YAML document (null where it is empty), and all that is wrong with it.

    After a syntax error the tree holds what was read before it. Of two values under one key the first one stays.
    """
    source = Source(text, file)
    root = Node(None, Place(file))
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
    except ImportError as error:
        message = f"YAML support is not installed ({error})"
        hint = "pip install 'nlpkernel[yaml]'"
        return root, [Problem(code=NO_YAML, message=message, place=Place(file), hint=hint)]
    reader = _Reader(source, root, YAML(typ="safe", pure=True).parse(text))
    try:
        reader.document()
    except Slip as slip:
        source.slipped(slip)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        offset = mark.index if mark else 0
        source.note(offset, ", ".join(filter(None, (error.context, error.problem))), _advice(text, offset))
    except YAMLError as error:
        source.note(getattr(error, "position", 0), getattr(error, "reason", None) or str(error))
    return reader.root, source.problems


def _advice(text: str, offset: int) -> str | None:
    char = text[offset : offset + 1]
    if char == "\t":
        return "YAML indents with blanks, not with tabs"
    if char in ("@", "`", "%", "*", "&", "!") and char:
        return "a text that begins with this character stands in quotes"
    return "a text with ': ' in it stands in quotes" if char == ":" else None


class _Reader:
    """Builds nodes from ruamel.yaml's events, which tell what was written; its composer decides too much itself."""

    def __init__(self, source: Source, root: Node, events: Iterator[Any]) -> None:
        self.source = source
        self.root = root
        self.events = events
        self.anchors: dict[str, Node] = {}
        self.aliased = 0

    def next(self) -> tuple[str, Any]:
        """Kind and event: "Scalar", "MappingStart", ..."""
        event = next(self.events)
        return type(event).__name__.removesuffix("Event"), event

    def document(self) -> None:
        self.next()
        kind, event = self.next()
        if kind == "StreamEnd":
            return
        if event.version not in (None, (1, 2)):
            version = ".".join(map(str, event.version))
            raise Slip(0, f"the file says that it is YAML {version}", "plans are read as YAML 1.2", REFUSED)
        self.node(*self.next(), 1, self.hold)
        self.next()
        kind, event = self.next()
        if kind != "StreamEnd":
            offset = event.start_mark.index
            raise Slip(offset, "a second document begins here", "a plan is one document", REFUSED)

    def hold(self, node: Node) -> None:
        self.root = node

    def node(self, kind: str, event: Any, depth: int, keep: Callable[[Node], object]) -> None:
        """Read what begins with `event` and give its node to `keep`: containers at once, so that a later mistake does
        not lose them."""
        offset = event.start_mark.index
        if depth > DEEPEST:
            raise too_deep(offset)
        if kind == "Alias":
            keep(self.alias(event.anchor, offset, depth))
            return
        place = self.source.place(offset)
        if kind == "Scalar":
            node = Node(self.scalar(event, offset), place)
        else:
            node = Node({} if kind == "MappingStart" else [], place)
            name = "map" if node.is_table else "seq"
            if event.tag not in (None, "!", _CORE + name):
                self.source.note(offset, *_tag(event.tag), REFUSED)
        keep(node)
        if node.is_table:
            self.members(node, depth)
        elif isinstance(node.value, list):
            self.items(node, depth)
        # Only now: an alias inside of what it names would have no end.
        if event.anchor is not None:
            self.anchors[event.anchor] = node

    def items(self, node: Node, depth: int) -> None:
        while True:
            kind, event = self.next()
            if kind == "SequenceEnd":
                return
            self.node(kind, event, depth + 1, node.value.append)

    def members(self, table: Node, depth: int) -> None:
        while True:
            kind, event = self.next()
            if kind == "MappingEnd":
                return
            offset = event.start_mark.index
            keys: list[Node] = []
            self.node(kind, event, depth + 1, keys.append)
            key = keys[0].value
            keep: Callable[[Node], None] = partial(self.source.put, table, key, offset)
            if not isinstance(key, str):
                what = "a table" if keys[0].is_table else "a list" if isinstance(key, list) else repr(key)
                self.source.note(offset, f"a key must be text, not {what}", "put it in quotes", KEY)
                keep = _drop
            elif key == "<<" and kind == "Scalar" and event.style is None and event.tag is None:
                self.source.note(
                    offset, "YAML 1.2 has no merge keys (<<)", "share settings with extends", REFUSED
                )
                keep = _drop
            self.node(*self.next(), depth + 1, keep)

    def alias(self, name: str, offset: int, depth: int) -> Node:
        node = self.anchors.get(name)
        if node is None:
            raise Slip(offset, f"no anchor &{name} is complete before this alias", code=REFUSED)
        copy = self.copy(node, offset, depth)
        copy.place = self.source.place(offset)
        return copy

    def copy(self, node: Node, offset: int, depth: int) -> Node:
        """A copy, so that each value of the tree can be filled and overridden by itself."""
        self.aliased += 1
        if self.aliased > MOST_ALIASED:
            message = f"the aliases of this file stand for more than {MOST_ALIASED} values"
            raise Slip(offset, message, "write fewer of them", REFUSED)
        if depth > DEEPEST:
            raise too_deep(offset)
        value = node.value
        if isinstance(value, dict):
            value = {key: self.copy(each, offset, depth + 1) for key, each in value.items()}
        elif isinstance(value, list):
            value = [self.copy(each, offset, depth + 1) for each in value]
        return Node(value, node.place, node.key_place)

    def scalar(self, event: Any, offset: int) -> Any:
        text: str = event.value
        if any("\ud800" <= char < "\ue000" for char in text):
            raise Slip(offset, "the text holds half of a surrogate pair, which is no character")
        tag: str | None = event.tag
        if tag in ("!", _CORE + "str") or (tag is None and event.style is not None):
            return text
        if tag is not None and tag.removeprefix(_CORE) not in ("null", "bool", "int", "float"):
            self.source.note(offset, *_tag(tag), REFUSED)
            return text
        try:
            value = _resolve(text)
        except ValueError:  # Python reads no more than some thousand digits.
            raise Slip(offset, f"a number of {len(text)} digits is too long") from None
        if tag is None:
            return value
        name = tag.removeprefix(_CORE)
        if name == "float" and type(value) is int:
            return float(value)
        if type(value).__name__ != {"null": "NoneType"}.get(name, name):
            self.source.note(offset, f"{shown(text)} is no {name}", "remove the tag", REFUSED)
        return value


def _resolve(text: str) -> Any:
    """What a plain scalar means in the core schema of YAML 1.2.2, section 10.3.2."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text in ("true", "True", "TRUE")
    if _INT.fullmatch(text):
        return int(text)
    if _RADIX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def _tag(tag: str) -> tuple[str, str]:
    shorter = tag.replace(_CORE, "!!")
    return f"the tag {shorter} means nothing in a plan", "remove it"


def _drop(node: Node) -> None:
    """Keep nothing of a value whose key is none."""
