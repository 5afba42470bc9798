"""`nlpkernel lock`: write down what exactly a plan would run, for `run --locked`."""

from __future__ import annotations

import argparse
from pathlib import Path

from nlpkernel.cli.options import plan_options
from nlpkernel.cli.output import say

HELP = "Open data and model without training, and write down plan, plugins, sources, data and environment."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    plan_options(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="default: the plan's path with the ending .lock"
    )


def execute(args: argparse.Namespace) -> int:
    """Write."""
    from nlpkernel.plan import Plan

    plan = Plan.load(args.plan, args.overrides)
    from nlpkernel.engine.locking import lock_of

    path = Path(args.output) if args.output else beside(args.plan)
    lock_of(plan, quiet=args.quiet).write(path)
    if not args.quiet:
        say(f"wrote {path}; `nlpkernel run {args.plan} --locked` holds to it")
    return 0


def beside(plan: str) -> Path:
    """Where the lock of a plan lies unless another place is named."""
    return Path(plan).with_suffix(".lock")
