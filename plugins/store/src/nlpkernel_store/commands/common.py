"""What the commands share: the versions of a run, and how they are shown."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nlpkernel import runs
from nlpkernel.errors import CheckpointError, UsageError, fail
from nlpkernel_store.catalog import CHECKS, Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.examine import Damage, damaged
from nlpkernel_store.manifest import Damaged, Entry, Manifest, NewerFormat, Part
from nlpkernel_store.plain import decode, encode
from nlpkernel_store.shares import checked


@attrs.frozen
class Check:
    """What the last `versions verify` of a version found, and when (seconds since 1970)."""

    at: float
    damage: tuple[str, ...]


def run_argument(parser: argparse.ArgumentParser) -> None:
    """The run."""
    parser.add_argument("run", metavar="RUN", help="the run's folder: runs/NAME, or runs/latest")


def version_argument(parser: argparse.ArgumentParser, name: str = "version", **options: Any) -> None:
    """A version."""
    help = "a name, 4 or more digits of one, a step of the current line, a tag, newest, or best"
    parser.add_argument(name, metavar=name.upper(), **{"help": help, **options})


def json_argument(parser: argparse.ArgumentParser) -> None:
    """For machines."""
    parser.add_argument("--json", action="store_true", help="for machines")


def open_versions(run: str, *, write: bool = False) -> tuple[Path, Catalog]:
    """The folder of a run, and its versions. write: they will be changed, so they have to be the run's own.

    Raise UsageError (STO009) where they are kept by another component, CheckpointError (STO05x) for places far away.
    """
    folder = runs.find(run)
    from nlpkernel.plan import Plan
    from nlpkernel_store.component import Store

    composition = Plan.load(folder / runs.PLAN).compose()
    component = composition.slot("checkpoint").component if composition.has("checkpoint") else None
    if not isinstance(component, Store):
        raise fail(
            UsageError,
            "STO009",
            f"the run {str(folder)!r} does not keep its versions in a store",
            owner=OWNER,
        )
    return folder, component.catalog(folder, owner=folder.resolve().name if write else None)


def read(catalog: Catalog, entry: Entry) -> tuple[Manifest, list[Part]]:
    """All that a version consists of. Raise CheckpointError (STO003, STO005)."""
    try:
        manifest, parts = catalog.read(entry)
        checked(parts)
        return manifest, parts
    except (Damaged, ValueError) as error:
        raise damaged(catalog, entry, [Damage(catalog.files.describe(entry.file), str(error))]) from error
    except NewerFormat as error:
        raise fail(CheckpointError, "STO005", f"{entry.name} has {error}", owner=OWNER) from error


def facts_of(manifest: Manifest) -> Mapping[str, Any]:
    """Where a version comes from."""
    return decode(manifest.facts)  # type: ignore[no-any-return]


def note_check(catalog: Catalog, entry: Entry, damage: list[str]) -> bool:
    """Remember what a verification found; tell whether that could be written."""
    try:
        catalog.files.replace(CHECKS + entry.id, encode([time.time(), tuple(damage)], "check"))
    except OSError:
        return False
    return True


def last_check(catalog: Catalog, entry: Entry) -> Check | None:
    """What the last verification found, if there was one."""
    try:
        return Check(*decode(catalog.files.read(CHECKS + entry.id)))
    except (OSError, ValueError, TypeError):
        return None


def size(number: float) -> str:
    """Bytes for people."""
    for unit, digits in (("B", 0), ("kB", 1), ("MB", 1)):
        if number < 1000:
            return f"{number:,.{digits}f} {unit}"
        number /= 1000
    return f"{number:,.2f} GB"


def moment(seconds: float) -> str:
    """A time for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
