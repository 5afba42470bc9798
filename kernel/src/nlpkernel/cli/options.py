"""Options that several commands have."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlpkernel.plan import Plan


def plan_options(parser: argparse.ArgumentParser) -> None:
    """A plan, and overrides of its settings."""
    parser.add_argument("plan", help="the plan: .toml, .yaml or .json")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="override a setting"
    )


def restart_options(parser: argparse.ArgumentParser) -> None:
    """How a run is supervised."""
    parser.add_argument(
        "--restarts",
        type=_whole,
        default=0,
        metavar="N",
        help="train in a process under supervision, and start it again from the newest version where it fails, at most "
        "N times",
    )


def supervised(
    args: argparse.Namespace, plan: Plan, folder: Path, *, new: bool, overwrite: bool = False
) -> int | None:
    """The exit code of a run under supervision; None where this process itself is to run the plan. Raise PlanError
    where the plan's parts do not fit together."""
    from nlpkernel.supervise.post import appointed

    if appointed():
        return None
    from nlpkernel.plan.fit import check_fit

    check_fit(plan)
    from nlpkernel.supervise.launch import supervise, wanted

    specs = wanted(plan, folder)
    if not specs and not args.restarts:
        return None
    flags = [*(["-q"] if args.quiet else []), *(["-v"] if args.verbose else [])]
    return supervise(
        plan,
        folder,
        specs,
        args.words,
        restarts=args.restarts,
        say=_tell,
        new=new,
        overwrite=overwrite,
        flags=flags,
    )


def _tell(text: str) -> None:
    sys.stderr.write(f"nlpkernel: {text}\n")
    sys.stderr.flush()


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("it cannot be negative")
    return number
