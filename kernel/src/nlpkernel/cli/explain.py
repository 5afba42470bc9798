"""`nlpkernel explain`: what an error code means, and what to do."""

from __future__ import annotations

import argparse

from nlpkernel.cli.output import say
from nlpkernel.errors import UsageError, fail

HELP = "Explain an error code: what it means, and what to do. Without a code: list them all."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("code", nargs="?", help="such as NK101")


def execute(args: argparse.Namespace) -> int:
    """Explain."""
    from nlpkernel.plugins.suggest import hint

    codes = all_codes()
    if args.code is None:
        for code, (title, _) in sorted(codes.items()):
            say(f"{code}  {title}")
        return 0
    code = args.code.upper()
    if code not in codes:
        raise fail(UsageError, "NK307", f"there is no error code {args.code!r}", hint=hint(code, codes))
    title, text = codes[code]
    say(f"{code}: {title}\n\n{text.strip()}")
    return 0


def all_codes() -> dict[str, tuple[str, str]]:
    """The codes of the kernel and of every installed plugin; a plugin that does not import has none."""
    from importlib import import_module

    from nlpkernel.plugins.scan import scan

    codes: dict[str, tuple[str, str]] = {}
    for offer in scan():
        if offer.point == "codes":
            module, _, attribute = offer.target.partition(":")
            try:
                codes |= getattr(import_module(module), attribute)
            except Exception as error:  # noqa: BLE001 - the codes of the others are explained all the same
                say(f"(the codes of {offer.distribution} cannot be read: {type(error).__name__}: {error})")
    return codes
