"""`nlpkernel experiments`: the runs of a book, and the settings in which they differ."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

HELP = "Show the runs that the monitor `experiment` has kept, with the settings in which they differ."
#: Columns of metrics where none is asked for by name, and the width of a setting.
_METRICS, _WIDTH = 3, 30


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument(
        "folder",
        nargs="?",
        default="runs/experiments",
        metavar="FOLDER",
        help="the book (default: runs/experiments)",
    )
    parser.add_argument("--sort", metavar="METRIC", help="by a metric, the least first: validation/loss")
    parser.add_argument("--descending", action="store_true", help="with --sort: the greatest first")
    parser.add_argument("--json", action="store_true", help="for machines: everything that is known")


def execute(args: argparse.Namespace) -> int:
    """Show them. Raise UsageError: EXP002 where there is no book, EXP003 for a metric that no run has."""
    from pathlib import Path

    from nlpkernel.cli.output import say, table, write_json
    from nlpkernel.errors import UsageError, fail
    from nlpkernel_experiment.reading import differing, entries, metric, metrics

    root = Path(args.folder)
    listed = entries(root) if root.is_dir() else []
    if not listed:
        raise fail(
            UsageError,
            "EXP002",
            f"no run is kept in {args.folder!r}",
            hint='name the monitor in a plan: [[monitor]] with use = "experiment"',
        )
    known = metrics(listed)
    if args.sort is not None:
        if args.sort not in known:
            raise fail(
                UsageError,
                "EXP003",
                f"no run has a metric {args.sort!r}",
                hint=f"there are {', '.join(known) or 'none yet'}",
            )
        listed = _sorted(listed, {id(each): metric(each, args.sort) for each in listed}, args.descending)
    if args.json:
        write_json(listed)
        return 0
    shown = [args.sort] if args.sort is not None else known[:_METRICS]
    settings = differing(listed)
    rows: list[Sequence[object]] = [("run", "status", "steps", *shown, *settings)]
    for each in listed:
        progress = each.get("progress")
        rows.append(
            (
                each["name"],
                each["status"],
                f"{progress['step']}/{each['steps']}" if progress else "",
                *(_number(metric(each, name)) for name in shown),
                *(_setting(each["settings"].get(address)) for address in settings),
            )
        )
    table(rows, head=True)
    if len(known) > len(shown):
        say(f"--json shows the other metrics too: {', '.join(name for name in known if name not in shown)}")
    return 0


def _sorted(
    listed: Sequence[dict[str, Any]], values: Mapping[int, float | None], descending: bool
) -> list[dict[str, Any]]:
    """By value; those without one come last."""
    having = [each for each in listed if values[id(each)] is not None]
    lacking = [each for each in listed if values[id(each)] is None]
    having.sort(key=lambda each: values[id(each)] or 0.0, reverse=descending)
    return having + lacking


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _setting(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
