"""`nlpkernel init`: a commented starter plan, from those that the installed plugins bring."""

from __future__ import annotations

import argparse
from pathlib import Path

from nlpkernel.cli.output import say
from nlpkernel.errors import UsageError, fail

HELP = "Write a commented starter plan."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("path", nargs="?", default="plan.toml", help="file to write (default: plan.toml)")
    parser.add_argument("--kind", help="which starter, of those that the installed plugins bring")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")


def execute(args: argparse.Namespace) -> int:
    """Write the plan."""
    from nlpkernel.plugins.examine import service
    from nlpkernel.plugins.scan import scan
    from nlpkernel.plugins.suggest import hint

    starters = {offer.name: offer for offer in scan() if offer.point == "starter"}
    if not starters:
        tip = "pip install nlpkernel-standard"
        raise fail(UsageError, "NK308", "no installed plugin brings a starter plan", hint=tip)
    kind = args.kind or min(starters)
    if kind not in starters:
        raise fail(UsageError, "NK308", f"there is no starter plan {kind!r}", hint=hint(kind, starters))
    text: str = service(starters[kind])
    path = Path(args.path)
    try:
        with path.open("w" if args.overwrite else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise fail(UsageError, "NK309", f"{str(path)!r} exists", hint="--overwrite replaces it") from None
    except OSError as error:
        message = f"{str(path)!r} cannot be written: {error.strerror}"
        raise fail(UsageError, "NK309", message) from error
    say(f"wrote {path}; now `nlpkernel check {path}`, then `nlpkernel run {path}`")
    return 0
