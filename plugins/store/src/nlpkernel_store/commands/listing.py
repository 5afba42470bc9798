"""`versions list`."""

from __future__ import annotations

import argparse
from typing import Any

from nlpkernel.cli.output import say, table, write_json
from nlpkernel.errors import CheckpointError
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.commands.common import (
    json_argument,
    last_check,
    moment,
    open_versions,
    run_argument,
    size,
)
from nlpkernel_store.manifest import FOLDER, Damaged, Entry, NewerFormat
from nlpkernel_store.places.tiers import Tiered
from nlpkernel_store.references import current


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    """List. Raise CheckpointError, after the list, where it is damaged from which version training goes on."""
    _, catalog = open_versions(args.run)
    entries = catalog.entries()
    head, line, broken = None, set(), None
    try:
        head = catalog.head()
        line = {entry.id for entry in current(catalog)}
    except CheckpointError as error:
        broken = error
        if args.json:
            raise
    tags = catalog.tags()
    lines: dict[str, int] = {}
    rows = [_row(catalog, entry, head, line, tags, lines) for entry in entries]
    if isinstance(catalog.files, Tiered):
        cold = catalog.files.only_cold(FOLDER)
        for row, entry in zip(rows, entries, strict=True):
            row["where"] = "cold" if entry.file in cold else "hot"
    if args.json:
        write_json(rows)
    elif not rows:
        say(
            f"no versions in {catalog.files.describe()}; a run has its first one when its first save is complete"
        )
    else:
        head_row: tuple[object, ...] = (
            *("", "version", "step", "metric", "size", "new", "line", "tags", "made", "verified"),
            *(["where"] if "where" in rows[0] else []),
        )
        table([head_row, *(_cells(row) for row in rows)], head=True)
        if broken is not None:
            raise broken
        if any(not row["current"] for row in rows):
            say(
                "\nlines in brackets were left by a roll-back; `nlpkernel versions prune` removes their versions"
            )
    return 0


def _row(
    catalog: Catalog,
    entry: Entry,
    head: Entry | None,
    line: set[str],
    tags: dict[str, str],
    lines: dict[str, int],
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.name,
        "id": entry.id,
        "step": entry.step,
        "head": entry == head,
        "current": entry.id in line,
        "tags": sorted(tag for tag, id_ in tags.items() if id_ == entry.id),
        "damage": "",
    }
    try:
        manifest = catalog.manifest(entry)
    except (Damaged, NewerFormat) as error:
        return {**row, "damage": str(error)}
    check = last_check(catalog, entry)
    return {
        **row,
        "created": manifest.created,
        "metrics": dict(manifest.metrics),
        "main": list(manifest.main),
        "bytes": manifest.size,
        "new_bytes": manifest.new,
        "line": lines.setdefault(manifest.line[-1][0], len(lines) + 1),
        "parent": manifest.parent,
        "workers": manifest.world,
        "verified": None if check is None else {"at": check.at, "damage": list(check.damage)},
    }


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    mark = ">" if row["head"] else ""
    place = [row["where"]] if "where" in row else []
    if row["damage"]:
        return (
            *(mark, row["name"], row["step"], "", "", "", "", ", ".join(row["tags"]), ""),
            *(f"damaged: {row['damage']}", *place),
        )
    metric = row["main"][0] if row["main"] else ""
    value = row["metrics"].get(metric)
    check = row["verified"]
    verified = "" if check is None else f"{moment(check['at'])}{', damaged' if check['damage'] else ''}"
    return (
        mark,
        row["name"],
        row["step"],
        "" if value is None else f"{metric} {value:.4f}",
        size(row["bytes"]),
        size(row["new_bytes"]),
        row["line"] if row["current"] else f"({row['line']})",
        ", ".join(row["tags"]),
        moment(row["created"]),
        verified,
        *place,
    )
