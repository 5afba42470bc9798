"""`nlpkernel resume`: continue a run, bit for bit, from a version."""

from __future__ import annotations

import argparse

from nlpkernel import runs
from nlpkernel.cli.options import restart_options, supervised
from nlpkernel.cli.run import finish

HELP = """Continue a run from its newest version, bit for bit, with the plan that it was started with. A changed plan is
taken with --plan or --set; what would make it another run is refused unless --allow names it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("run", help="the run's folder: runs/NAME, or runs/latest")
    parser.add_argument("--from", dest="version", metavar="VERSION", help="continue from this version")
    parser.add_argument(
        "--plan", metavar="FILE", help="continue with this plan, in which something has changed"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="change a setting"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="a setting, section or distribution that may be other than it was: train.seed, data, torch, ...",
    )
    restart_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Train on to the end."""
    folder = runs.find(args.run)
    from nlpkernel.plan import Plan

    plan = Plan.load(args.plan or folder / runs.PLAN, args.overrides)
    # A restart means this run, whatever `runs/latest` names by then.
    args.words = tuple(str(folder) if word == args.run else word for word in args.words)
    code = supervised(args, plan, folder, new=False)
    if code is not None:
        return code
    from nlpkernel.engine.api import Loop

    version = args.version or "newest"
    return finish(Loop(plan, folder, resume=version, allow=args.allow, quiet=args.quiet))
