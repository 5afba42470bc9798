"""`nlpkernel report`: what a run came to, and everything that it skipped."""

from __future__ import annotations

import argparse

from nlpkernel import runs
from nlpkernel.cli.output import say, write_json
from nlpkernel.errors import UsageError, fail

HELP = "Show what a run came to: metrics, versions, and everything that was skipped or repaired."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("run", help="the run's folder: runs/NAME, or runs/latest")
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Show."""
    from nlpkernel.report import Report

    folder = runs.find(args.run)
    path = folder / runs.REPORT
    if not path.exists():
        raise fail(
            UsageError,
            "NK306",
            f"the run {str(folder)!r} has no report: it is running, or was killed",
            hint=f"`nlpkernel resume {folder}` continues it",
        )
    if args.json:
        import json

        write_json(json.loads(path.read_text(encoding="utf-8")))
    else:
        say(Report.read(path).text())
    return 0
