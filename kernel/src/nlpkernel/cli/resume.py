"""`nlpkernel resume`: continue a run, bit for bit, from a version."""

from __future__ import annotations

import argparse

from nlpkernel import runs
from nlpkernel.cli.run import finish

HELP = "Continue a run from its newest version, with the plan and the settings that it was started with."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("run", help="the run's folder: runs/NAME, or runs/latest")
    parser.add_argument("--from", dest="version", metavar="VERSION", help="continue from this version")


def execute(args: argparse.Namespace) -> int:
    """Train on to the end."""
    folder = runs.find(args.run)
    from nlpkernel.engine.api import Loop
    from nlpkernel.plan import Plan

    plan = Plan.load(folder / runs.PLAN)
    return finish(Loop(plan, folder, resume=args.version or "newest", quiet=args.quiet))
