"""`nlpkernel plan diff`: how two plans differ, once both are filled."""

from __future__ import annotations

import argparse
from typing import Any

from nlpkernel.cli.output import say, write_json

HELP = "Compare two plans after both are filled: defaults and presets included."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    actions = parser.add_subparsers(dest="action", required=True)
    diff = actions.add_parser("diff", help="settings that differ")
    diff.add_argument("a")
    diff.add_argument("b")
    diff.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Compare; exit code 1 where they differ."""
    from nlpkernel.plan import Plan

    differences = diff(Plan.load(args.a), Plan.load(args.b))
    if args.json:
        write_json([{"setting": path, "a": a, "b": b} for path, a, b in differences])
    else:
        for path, a, b in differences:
            say(f"{path}: {_shown(a)} -> {_shown(b)}")
        if not differences:
            say("no difference")
    return 1 if differences else 0


def diff(a: Any, b: Any) -> list[tuple[str, Any, Any]]:
    """Settings that differ between two plans, by dotted path; None where one has no such setting."""
    left, right = _flat(a), _flat(b)
    paths = list(dict.fromkeys([*left, *right]))
    return [(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)]


def _flat(plan: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path, node in plan.filled.walk():
        if not isinstance(node.value, (dict, list)):
            values[path] = node.value if node.reference is None else node.reference
    return values


def _shown(value: Any) -> str:
    return "(none)" if value is None else repr(value)
