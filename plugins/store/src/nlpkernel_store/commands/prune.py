"""`versions prune`."""

from __future__ import annotations

import argparse

from nlpkernel import runs
from nlpkernel.cli.output import count, say, write_json
from nlpkernel.errors import CheckpointError, Place, fail
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.commands.common import json_argument, open_versions, run_argument, size, version_argument
from nlpkernel_store.manifest import Damaged, Entry, NewerFormat
from nlpkernel_store.references import current, resolve
from nlpkernel_store.rotation import Rule, kept


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    version_argument(
        parser, nargs="*", help="versions to remove; left out: those that roll-backs left behind"
    )
    parser.add_argument("--last", type=int, metavar="N", help="of the current line, keep the newest N")
    parser.add_argument("--best", type=int, default=0, metavar="N", help="beside --last: and the N best")
    parser.add_argument(
        "--every", type=int, metavar="N", help="beside --last: and those of a multiple of N steps"
    )
    parser.add_argument("--damaged", action="store_true", help="versions whose manifest cannot be read, too")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    """Remove. What has a tag, and the version that training goes on from, stay."""
    folder, catalog = open_versions(args.run, write=True)
    with runs.claim(folder):
        doomed = _named(catalog, args.version) if args.version else _doomed(catalog, args)
        sizes = {entry: _new(catalog, entry) for entry in doomed}
        try:
            if not args.dry_run:
                for entry in doomed:
                    catalog.remove(entry)
            freed = catalog.sweep(without=doomed, dry=args.dry_run)
        except (OSError, Damaged) as error:
            raise fail(
                CheckpointError,
                "STO011",
                f"not everything could be removed: {error}",
                place=Place(catalog.files.describe()),
                owner=OWNER,
                hint="--damaged removes versions that cannot be read",
            ) from error
    if args.json:
        write_json(
            {
                "versions": [entry.name for entry in doomed],
                "packs": freed,
                "bytes": sum(freed.values()),
                "dry": args.dry_run,
            }
        )
        return 0
    for entry in doomed:
        say(f"{entry.name}  {sizes[entry]}")
    verb = "would be" if args.dry_run else "were"
    say(
        f"{count(len(doomed), 'version')} and {count(len(freed), 'pack')} ({size(sum(freed.values()))}) {verb} removed"
    )
    return 0


def _named(catalog: Catalog, references: list[str]) -> list[Entry]:
    """Versions that are asked for by name. Raise CheckpointError (STO004) for one that stays."""
    head = catalog.head()
    tags = {id_: tag for tag, id_ in catalog.tags().items()}
    found = list(dict.fromkeys(resolve(catalog, each) for each in references))
    for entry in found:
        if entry == head:
            message = f"{entry.name} is the version from which training goes on"
            raise fail(CheckpointError, "STO004", message, owner=OWNER, hint="go back to another one first")
        if entry.id in tags:
            message = f"{entry.name} has the tag {tags[entry.id]!r}"
            raise fail(CheckpointError, "STO004", message, owner=OWNER, hint="take the tag away first")
    return found


def _doomed(catalog: Catalog, args: argparse.Namespace) -> list[Entry]:
    line = current(catalog)
    head = catalog.head()
    tagged = set(catalog.tags().values())
    stay = {entry.id for entry in line} | tagged
    if args.last is not None:
        rule = Rule(last=max(args.last, 1), best=args.best, every=args.every)
        main = catalog.manifest(line[-1]).main if line else ()
        stay = kept(catalog.candidates(line), rule, main, tagged) | tagged
    if head is not None:
        stay.add(head.id)
    doomed = []
    for entry in catalog.entries():
        try:
            catalog.manifest(entry)
            gone = entry.id not in stay
        except (Damaged, NewerFormat) as error:
            # Which line it was of cannot be read; one of a newer release is none of ours to remove.
            gone = args.damaged and isinstance(error, Damaged) and entry.id not in tagged
        if gone:
            doomed.append(entry)
    return doomed


def _new(catalog: Catalog, entry: Entry) -> str:
    try:
        return size(catalog.manifest(entry).new)
    except (Damaged, NewerFormat):
        return "damaged"
