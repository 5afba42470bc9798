"""`nlpkernel run`: train a plan; `--dry-run` says what it would cost."""

from __future__ import annotations

import argparse
from pathlib import Path

from nlpkernel.cli.output import say

HELP = "Train. The run gets the folder runs/NAME; a signal ends it after its step, saved."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("plan", help="the plan: .toml, .yaml or .json")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="override a setting"
    )
    parser.add_argument(
        "--runs", default="runs", metavar="FOLDER", help="where run folders are (default: runs)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing run of this name")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="two steps, one evaluation, one save, in a folder that is removed; then the cost of the full run",
    )


def execute(args: argparse.Namespace) -> int:
    """Train to the end."""
    from nlpkernel.plan import Plan

    plan = Plan.load(args.plan, args.overrides)
    if args.dry_run:
        from nlpkernel.engine.rehearsal import rehearse

        say(rehearse(plan).text())
        return 0
    from nlpkernel.engine.api import Loop

    return finish(Loop(plan, Path(args.runs) / plan.name, overwrite=args.overwrite), quiet=args.quiet)


def finish(loop: object, *, quiet: bool) -> int:
    """Take a run to its end and print its report; 128 + signal where a signal ended it."""
    from nlpkernel.engine.api import Loop

    assert isinstance(loop, Loop)
    for _ in loop.steps():
        pass
    if not quiet:
        say(loop.report().text())
    return 0 if loop.signal is None else 128 + loop.signal
