"""Scalars of a plan: what a value may be, and what is said of one that may not."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import attrs

from nlpkernel.components import Setting
from nlpkernel.plan.environment import escape_references
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.units import parse_unit
from nlpkernel.plugins.suggest import closest

#: Code, what stands behind the path of the setting, hint.
_Message = tuple[str, str, str | None]


def scalar(kind: Any, node: Node, facts: Setting) -> tuple[_Message | None, Any]:
    """A scalar of type `kind`: what is wrong with it, or what it is."""
    value = node.value
    if node.given is not None and kind in (str, Path):
        value = node.given  # Text from the environment is text, whatever it looks like.
    if get_origin(kind) is Literal:
        return _choice(get_args(kind), node)
    if facts.unit is not None and isinstance(value, str) and kind in (int, float):
        try:
            value = parse_unit(value, facts.unit)
        except ValueError as error:
            wrong = f" must be {name_of(kind, facts)}, not {seen(node)}"
            return ("NK103", f": {error}" if node.reference is None else wrong, None), None
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is bool and isinstance(value, bool):
        return None, value
    if kind is int and number and isinstance(value, int):
        return _range(value, node, facts), value
    if kind is float and number:
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        return _range(value, node, facts), value
    if kind is str and isinstance(value, str):
        if facts.min_length is not None and len(value) < facts.min_length:
            return ("NK104", f" must have at least {facts.min_length} characters", None), None
        return None, value
    if kind is Path and isinstance(value, str) and value:
        return None, value
    return ("NK103", f" must be {name_of(kind, facts)}, not {seen(node)}", _slip(kind, node)), None


def _choice(options: tuple[Any, ...], node: Node) -> tuple[_Message | None, Any]:
    for value in (node.value, node.given):
        for option in options:
            if type(option) is type(value) and option == value:
                return None, option
    listed = ", ".join(text_of(option) for option in options)
    if type(node.value) not in map(type, options):
        return ("NK103", f" must be one of {listed}, not {seen(node)}", None), None
    near = None
    if isinstance(node.value, str) and node.reference is None:
        near = closest(node.value, [option for option in options if isinstance(option, str)])
    tip = f"did you mean {text_of(near)}?" if near else None
    return ("NK105", f" is {_value(node)}, which is none of {listed}", tip), None


def _range(value: float, node: Node, facts: Setting) -> _Message | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "NK104", f" is {_value(node)}, and must be a finite number", None
    wanted = [
        f"{word} {bound}"
        for word, bound, good in (
            ("greater than", facts.gt, facts.gt is None or value > facts.gt),
            ("at least", facts.ge, facts.ge is None or value >= facts.ge),
            ("less than", facts.lt, facts.lt is None or value < facts.lt),
            ("at most", facts.le, facts.le is None or value <= facts.le),
        )
        if bound is not None and not good
    ]
    return ("NK104", f" is {_value(node)}, and must be {' and '.join(wanted)}", None) if wanted else None


def _slip(kind: Any, node: Node) -> str | None:
    """What the user probably meant."""
    value = node.value
    if node.reference is not None:
        return None
    if isinstance(value, str) and kind in (int, float, bool) and not node.bare:
        plain = value.lower() if kind is bool else value
        try:
            good = plain in ("true", "false") if kind is bool else math.isfinite(kind(plain))
        except (ValueError, OverflowError):
            return None
        return f"write {plain} without quotes" if good else None
    if kind is int and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if kind is str and isinstance(value, (int, float)):
        return f'write "{text_of(value)}" with quotes'
    return None


def name_of(kind: Any, facts: Setting) -> str:
    """A type in words, for what a value must be."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(text_of, get_args(kind)))
    names: dict[Any, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        Path: "a path",
    }
    name = names.get(kind) or ("a list" if get_origin(kind) in (list, tuple) else "a table")
    samples = {"bytes": '"200MB"', "seconds": '"5m"', "count": '"300M"'}
    return f"{name} or text like {samples[facts.unit]}" if facts.unit and kind in (int, float) else name


def seen(node: Node) -> str:
    """What stands there, for a message. What comes from the environment may be a secret, and is not shown."""
    value = node.value
    sort = {dict: "table", list: "list", str: "text", int: "number", float: "number"}.get(type(value))
    if node.reference is not None:
        return f"the {sort or 'value'} that {node.reference} stands for"
    if value is None:
        return "nothing (null)"
    if sort in ("table", "list"):
        return f"a {sort}"
    return f"the {sort} {text_of(value)}" if sort else text_of(value)


def _value(node: Node) -> str:
    return text_of(node.value) if node.reference is None else seen(node)


def text_of(value: Any) -> str:
    """A plain value as a plan writes it, cut where it is long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if isinstance(value, str):
        text = f'"{value}"' if value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def absolute(node: Node, text: str) -> tuple[Path, Node]:
    """A path and its node, both absolute: the filled plan lies in another folder than the plan."""
    path = Path(text)
    with contextlib.suppress(RuntimeError):  # `~nobody` is a file of that name.
        path = path.expanduser()
    reference = node.reference
    if node.base is not None and not path.is_absolute():
        folder = node.base.absolute()
        path = folder / path
        if reference is not None:
            reference = f"{escape_references(str(folder))}/{reference}"
    return path, attrs.evolve(node, value=str(path), reference=reference)
