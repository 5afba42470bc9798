"""`nlpkernel data`: what becomes of a plan's documents."""

from __future__ import annotations

import argparse
from functools import cache

from nlpkernel.cli.options import plan_options

HELP = """Show what becomes of a plan's documents, on their way from files to rows of tokens. Without an option:
--stats."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    plan_options(parser)
    parser.add_argument(
        "--stats", action="store_true", help="what was read, dropped, changed, kept, tokenized and packed"
    )
    parser.add_argument(
        "--show", type=int, metavar="N", help="the first N rows of the training split, as text"
    )
    parser.add_argument(
        "--build", action="store_true", help="clean and tokenize now, so that runs find it done"
    )
    parser.add_argument(
        "--clean", action="store_true", help="remove what is in the cache of this plan's data"
    )
    parser.add_argument(
        "--trace",
        metavar="SAMPLE",
        help="what each stage did to one document, named as messages do: FILE:LINE",
    )
    parser.add_argument(
        "--write",
        metavar="FILE",
        help="write the cleaned documents: .jsonl, .jsonl.gz, or a format of a plugin",
    )
    parser.add_argument("--overwrite", action="store_true", help="with --write: replace the file")
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Do what is asked, one after the other."""
    from nlpkernel.cli.output import say, write_json
    from nlpkernel.errors import UsageError, fail
    from nlpkernel_text.building import Building
    from nlpkernel_text.commands.data import building, statistics, tracing, writing
    from nlpkernel_text.commands.opened import opened

    if args.show is not None and args.show < 1:
        raise fail(UsageError, "TXT019", "--show takes a number of rows, 1 or more")
    looks = args.show is not None or args.build or args.clean or args.trace or args.write
    with opened(args.plan, args.overrides, quiet=args.quiet) as (text, run):
        found: dict[str, object] = {}
        lines: list[str] = []

        def add(name: str, told: tuple[object, list[str]]) -> None:
            found[name] = told[0]
            lines.extend(([""] if lines else []) + told[1])

        # One for all, and when it is needed: it reads every file for its key.
        whole = cache(lambda: Building(text, run))
        if args.clean:
            add("clean", building.clean(whole()))
        if args.build:
            add("build", building.build(whole()))
        if args.trace:
            add("trace", tracing.trace(text, run, args.trace, whole))
        if args.write:
            add("write", writing.write(text, run, args.write, args.overwrite, whole))
        if args.stats or not looks:
            add("stats", statistics.statistics(text, run, whole))
        if args.show is not None:
            add("show", statistics.show(text, run, args.show, whole))
    if args.json:
        write_json(found)
    else:
        for line in lines:
            say(line)
    return 0
