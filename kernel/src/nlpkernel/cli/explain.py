"""`nlpkernel explain`: what an error code means, and what to do."""

from __future__ import annotations

import argparse
import sys

from nlpkernel.cli.output import say
from nlpkernel.errors import UsageError, fail

HELP = "Explain an error code: what it means, and what to do. Without a code: list them all."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("code", nargs="?", help="such as NK101")


def execute(args: argparse.Namespace) -> int:
    """Explain."""
    from nlpkernel.plugins.suggest import closest

    if args.code is None:
        for code, (title, _) in sorted(all_codes().items()):
            say(f"{code}  {title}")
        return 0
    wanted = args.code.upper()
    # Only the codes of the kernel, and of those that have the prefix, are looked at.
    codes = all_codes(wanted.rstrip("0123456789"))
    if wanted not in codes:
        near = closest(wanted, codes)
        tip = f"did you mean {near!r}?" if near else "`nlpkernel explain` without a code lists them all"
        raise fail(UsageError, "NK307", f"there is no error code {args.code!r}", hint=tip)
    title, text = codes[wanted]
    say(f"{wanted}: {title}\n\n{text.strip()}")
    return 0


def all_codes(prefix: str | None = None) -> dict[str, tuple[str, str]]:
    """The codes of the kernel and of every installed plugin, or only of those with a prefix. A plugin whose codes
    cannot be read has none, and is named on standard error."""
    from nlpkernel.codes import CODES
    from nlpkernel.errors import PluginError
    from nlpkernel.plugins.examine import service
    from nlpkernel.plugins.scan import scan

    codes = dict(CODES)
    for offer in scan():
        if offer.point == "codes" and prefix in (None, offer.name):
            try:
                codes |= service(offer)
            except PluginError as error:
                sys.stderr.write(f"{error}\n")
    return codes
