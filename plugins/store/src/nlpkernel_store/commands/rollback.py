"""`nlpkernel rollback`: go on from an older version."""

from __future__ import annotations

import argparse

from nlpkernel import runs
from nlpkernel.cli.output import count, say
from nlpkernel.errors import CheckpointError, fail
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.commands.common import open_versions, run_argument, version_argument
from nlpkernel_store.examine import damaged, examine
from nlpkernel_store.manifest import NewerFormat
from nlpkernel_store.references import current, resolve

HELP = """Go on from an older version: `nlpkernel resume` then starts there, and what it saves is a new line. The
versions that are left behind stay; `nlpkernel versions prune` removes them."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    version_argument(parser)


def execute(args: argparse.Namespace) -> int:
    """Go back. Raise UsageError while the run is in use, CheckpointError (STO003) for a version that is damaged."""
    folder, catalog = open_versions(args.run, write=True)
    with runs.claim(folder):
        entry = resolve(catalog, args.version)
        try:
            damage = examine(catalog, entry)
        except NewerFormat as error:
            raise fail(CheckpointError, "STO005", f"{entry.name} has {error}", owner=OWNER) from error
        if damage:
            raise damaged(catalog, entry, damage)
        before = _current(catalog)
        catalog.set_head(entry)
        left = before - _current(catalog)
    say(f"training goes on from {entry.name} (step {entry.step}): nlpkernel resume {folder}")
    if left:
        say(f"{count(len(left), 'version')} left behind; `nlpkernel versions prune {folder}` removes them")
    return 0


def _current(catalog: Catalog) -> set[str]:
    try:
        return {entry.id for entry in current(catalog)}
    except CheckpointError:
        return set()  # The head is damaged, and about to be written anew.
