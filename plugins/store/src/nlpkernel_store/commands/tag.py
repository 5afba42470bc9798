"""`versions tag`."""

from __future__ import annotations

import argparse

from nlpkernel.cli.output import say
from nlpkernel.errors import CheckpointError, fail
from nlpkernel_store.codes import OWNER
from nlpkernel_store.commands.common import open_versions, run_argument, version_argument
from nlpkernel_store.references import resolve


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    version_argument(parser)
    parser.add_argument("name", metavar="NAME", help="the tag: letters, digits, dots, dashes, underscores")
    parser.add_argument("--delete", action="store_true", help="take the tag away from the version")


def execute(args: argparse.Namespace) -> int:
    """Tag. It goes while the run trains, too."""
    _, catalog = open_versions(args.run, write=True)
    entry = resolve(catalog, args.version)
    if args.delete:
        if catalog.tags().get(args.name) != entry.id:
            raise fail(CheckpointError, "STO004", f"{entry.name} has no tag {args.name!r}", owner=OWNER)
        catalog.remove_tag(args.name)
        say(f"{entry.name} is not {args.name} any more")
        return 0
    catalog.set_tag(args.name, entry)
    say(f"{entry.name} is {args.name}")
    return 0
