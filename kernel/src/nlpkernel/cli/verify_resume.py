"""`nlpkernel verify-resume`: run a plan, kill it, resume it, and prove that nothing of it shows."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from nlpkernel.cli.options import plan_options
from nlpkernel.cli.output import count, say, table, write_json
from nlpkernel.errors import UsageError, fail

if TYPE_CHECKING:
    from nlpkernel.engine.proof import Proof

HELP = """Prove that a plan resumes bit for bit: run it unbroken, run it again and kill it (SIGKILL) at random moments,
resume it each time, and compare every loss, norm, weight and other state. Exit code 1 where anything differs."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    plan_options(parser)
    parser.add_argument(
        "--steps", type=_many, default=20, metavar="N", help="steps of each run (default: 20)"
    )
    parser.add_argument(
        "--kills", type=_some, default=2, metavar="N", help="how often to kill it (default: 2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the moments (default: 0)")
    parser.add_argument("--keep", metavar="FOLDER", help="keep both runs in this new folder")
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Run, compare, show."""
    from nlpkernel.plan import Plan

    plan = Plan.load(args.plan, args.overrides)
    from nlpkernel.engine.proof import prove, refuse

    with ExitStack() as stack:
        if args.keep:
            folder = Path(args.keep)
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise fail(UsageError, "NK305", f"{args.keep!r} cannot be made: {error.strerror}") from error
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nlpkernel-verify-")))
        proof = prove(plan, folder, steps=args.steps, kills=args.kills, seed=args.seed)
    if args.json:
        import attrs

        write_json({**attrs.asdict(proof), "holds": proof.holds})
        return 0 if proof.holds else 1
    _show(proof, quiet=args.quiet)
    refuse(proof)
    return 0


def _show(proof: Proof, *, quiet: bool) -> None:
    if quiet:
        return
    say(f"unbroken   steps 1 to {proof.steps}, no save before its end")
    for number, part in enumerate(proof.parts, 1):
        ended = f"killed after step {part.told}" if part.killed else "ran to its end"
        say(f"process {number}  from step {part.began + 1}, {ended}")
    say(f"saves      after steps {', '.join(map(str, proof.saves))}")
    say()
    rows = [(row.what, row.number, "bit for bit" if not row.differences else "NO") for row in proof.rows]
    table([("compared", "number", "equal"), *rows], head=True)
    for row in proof.rows:
        for line in row.differences[:5]:
            say(f"  {row.what}: {line}")
        if len(row.differences) > 5:
            say(f"  {row.what}: {count(len(row.differences) - 5, 'more difference')}")
    if proof.holds:
        say()
        say("the run resumes bit for bit")


def _many(text: str) -> int:
    return _at_least(text, 2)


def _some(text: str) -> int:
    return _at_least(text, 1)


def _at_least(text: str, least: int) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}")
    return number
