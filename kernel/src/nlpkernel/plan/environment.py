"""References to environment variables in the texts of a plan: "${NAME}", "${NAME:-fallback}"."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nlpkernel.errors import Problem
from nlpkernel.plan.codes import REFERENCE, UNSET
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.source import shown
from nlpkernel.plan.toml import read_value

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<fallback>[^{}]*))?\})?")


def escape_references(text: str) -> str:
    """`text` written so that it is read back as it is, whatever `${` it holds."""
    return text.replace("${", "$${")


def fill(root: Node, environ: Mapping[str, str]) -> list[tuple[Node, Problem]]:
    """Put values in place of the references below `root`, and tell which cannot be filled.

    A text that is one reference and nothing else is typed like an override; around other text the result is text. In
    both cases `reference` keeps what was written. `$${` becomes `${`.
    """
    problems: list[tuple[Node, Problem]] = []
    for _, node in list(root.walk()):
        if isinstance(node.value, str) and "${" in node.value and node.reference is None:
            _fill(node, environ, problems)
    return problems


def typed(text: str, like: Node) -> Node:
    """The node of a value that was given as text outside of a file: a TOML value, or else a bare word."""
    node = read_value(text, like.place)
    if node is None:
        node = Node(text, like.place, bare=True)
    for _, each in node.walk():
        each.origin, each.base = like.origin, like.base
    node.key_place = like.key_place
    return node


def _fill(node: Node, environ: Mapping[str, str], problems: list[tuple[Node, Problem]]) -> None:
    text: str = node.value
    failed = False
    used = False

    def fail(code: str, message: str, hint: str) -> str:
        nonlocal failed
        failed = True
        problems.append((node, Problem(code=code, message=message, place=node.place, hint=hint)))
        return ""

    def put(match: re.Match[str]) -> str:
        nonlocal used
        name = match["name"]
        if match[0] == "$${":
            return "${"
        if name is None:
            hint = "write ${NAME} or ${NAME:-fallback}, or $${ for a literal ${"
            return fail(REFERENCE, f"{shown(text[match.start() :])} begins no reference", hint)
        used = True
        value = environ.get(name)
        # As in a shell, a fallback stands for a variable that is set to nothing too.
        if match["fallback"] is not None:
            return value or match["fallback"]
        if value is None:
            return fail(
                UNSET,
                f"the environment variable {name} is not set",
                f"set it, or write ${{{name}:-fallback}}",
            )
        return value

    filled = _REFERENCE.sub(put, text)
    if failed:
        return
    whole = _REFERENCE.fullmatch(text)
    if used and whole and whole["name"] is not None:
        value = typed(filled, node)
        for _, each in value.walk():
            each.reference = text
        node.value, node.bare, node.given = value.value, value.bare, filled
    else:
        node.value = filled
    if used:
        node.reference = text
