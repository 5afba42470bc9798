"""`nlpkernel runs`: the runs in a folder, and where each stands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nlpkernel import runs
from nlpkernel.cli.output import say, table, write_json
from nlpkernel.errors import UsageError

HELP = "List the runs in a folder, oldest first."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument(
        "--runs", default="runs", metavar="FOLDER", help="where run folders are (default: runs)"
    )
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """List."""
    listed = [describe(folder) for folder in runs.each(Path(args.runs))]
    if args.json:
        write_json(listed)
    elif not listed:
        say(f"no runs in {args.runs!r}; start one with `nlpkernel run plan.toml`")
    else:
        rows = [
            (each["name"], each["status"], each["steps"], each["metric"], _short(each["reason"]))
            for each in listed
        ]
        table([("run", "status", "steps", "best", "reason"), *rows], head=True)
    return 0


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def describe(folder: Path) -> dict[str, Any]:
    """One run from its files alone. A run without a report is running, or was killed."""
    from nlpkernel.report import Report

    try:
        report = Report.read(folder / runs.REPORT)
    except FileNotFoundError:
        return _unknown(folder, "open", "running, or was killed")
    except UsageError as error:
        return _unknown(folder, "damaged", error.problems[0].message)
    best = "" if report.best is None else f"{report.main} {report.best:.4f}"
    return {
        "name": folder.name,
        "status": report.status,
        "steps": f"{report.progress.step}/{report.length}",
        "metric": best,
        "reason": report.reason,
    }


def _unknown(folder: Path, status: str, reason: str) -> dict[str, Any]:
    return {"name": folder.name, "status": status, "steps": "", "metric": "", "reason": reason}
