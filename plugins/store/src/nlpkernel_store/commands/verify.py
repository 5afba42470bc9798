"""`versions verify`."""

from __future__ import annotations

import argparse

from nlpkernel.cli.output import say, write_json
from nlpkernel_store.commands.common import (
    json_argument,
    note_check,
    open_versions,
    run_argument,
    version_argument,
)
from nlpkernel_store.examine import examine
from nlpkernel_store.manifest import NewerFormat
from nlpkernel_store.references import resolve


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    version_argument(parser, nargs="*", help="versions; left out: all of them")
    json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    """Verify; exit code 1 where anything is damaged."""
    _, catalog = open_versions(args.run)
    entries = [resolve(catalog, each) for each in args.version] if args.version else catalog.entries()
    told = []
    for entry in entries:
        try:
            damage = [str(each) for each in examine(catalog, entry)]
        except NewerFormat as error:
            damage = [str(error)]
        note_check(catalog, entry, damage)
        told.append({"name": entry.name, "id": entry.id, "sound": not damage, "damage": damage})
        if not args.json:
            say(f"{entry.name}  {'damaged' if damage else 'sound'}")
            for line in damage:
                say(f"  {line}")
    if args.json:
        write_json(told)
    elif not entries:
        say(f"no versions in {catalog.files.describe()}")
    return 0 if all(each["sound"] for each in told) else 1
