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
    from nlpkernel.plan.compare import differences

    found = differences(Plan.load(args.a).text(), Plan.load(args.b).text())
    if args.json:
        write_json([{"setting": path, "a": a, "b": b} for path, a, b in found])
    else:
        for path, a, b in found:
            say(f"{path}: {_shown(a)} -> {_shown(b)}")
        if not found:
            say("no difference")
    return 1 if found else 0


def _shown(value: Any) -> str:
    return "(none)" if value is None else repr(value)
