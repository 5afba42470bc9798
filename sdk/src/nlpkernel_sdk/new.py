"""`nlpkernel new plugin`: a whole distribution with one component, whose own tests pass as generated."""

from __future__ import annotations

import argparse
from pathlib import Path

from nlpkernel.cli.output import say
from nlpkernel.hookspecs import POINTS, SLOTS

HELP = """Write a new plugin: a distribution with a small working component for a slot or an extension point, its tests,
README and CI file. With --single-file only the component, for a plan that names it by its file."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("what", choices=["plugin"], help="what to write")
    parser.add_argument("name", help="the name that a plan will write in `use`: my-optimizer")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--slot", metavar="SLOT", help=f"for a slot: {', '.join(SLOTS)}")
    others = ", ".join(name for name in POINTS if name not in SLOTS)
    where.add_argument("--point", metavar="POINT", help=f"for an extension point: {others}")
    parser.add_argument("--single-file", action="store_true", help="one file, and no distribution")
    parser.add_argument("--into", default=".", metavar="FOLDER", help="where to write it (default: here)")


def execute(args: argparse.Namespace) -> int:
    """Write, and say what comes next."""
    from nlpkernel_sdk.scaffold import scaffold, single_file, write

    point, into = args.slot or args.point, Path(args.into)
    if args.single_file:
        files = single_file(args.name, point)
        (path,) = write(files, into)
        say(f"wrote {path}")
        say(f"in a plan beside it: {files.use}")
        return 0
    files = scaffold(args.name, point)
    folder = into / files.distribution
    for path in write(files, folder, whole=True):
        say(f"wrote {path}")
    say(f'next: cd {folder} && pip install -e ".[test]" && pytest')
    return 0
