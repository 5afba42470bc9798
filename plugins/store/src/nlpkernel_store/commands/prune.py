"""`versions prune`."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from nlpkernel import runs
from nlpkernel.cli.output import count, say, write_json
from nlpkernel.errors import CheckpointError, Place, fail
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.commands.common import json_argument, open_versions, run_argument, size, version_argument
from nlpkernel_store.examine import newest_sound
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
        try:
            # A tag may be given meanwhile.
            with catalog.files.lock() if not args.dry_run else nullcontext(True) as locked:
                doomed = _named(catalog, args.version) if args.version else _doomed(catalog, args)
                sizes = {entry: _new(catalog, entry) for entry in doomed}
                if not args.dry_run:
                    doomed = [entry for entry in doomed if catalog.remove(entry, locked=locked)]
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
    head = catalog.head()
    if head is not None:
        _readable(catalog, head)
    line = current(catalog)
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


def _readable(catalog: Catalog, head: Entry) -> None:
    """Raise CheckpointError where the version that training goes on from cannot be read: what is of its line, and so
    stays, is not known then; and which version to go on from instead is for a person to say."""
    try:
        catalog.manifest(head)
    except NewerFormat as error:
        raise fail(CheckpointError, "STO005", f"{head.name} has {error}", owner=OWNER) from error
    except Damaged as error:
        sound = newest_sound(catalog, head)
        raise fail(
            CheckpointError,
            "STO003",
            f"training goes on from {head.name}, and {error}; so which versions are of its line cannot be told, and "
            "nothing was removed",
            place=Place(catalog.files.describe(head.file)),
            owner=OWNER,
            hint=f"`nlpkernel rollback RUN {sound.name}` goes on from the newest sound version; prune then"
            if sound
            else "no other version is sound: restore the file, or start the run anew",
        ) from error


def _new(catalog: Catalog, entry: Entry) -> str:
    try:
        return size(catalog.manifest(entry).new)
    except (Damaged, NewerFormat):
        return "damaged"
