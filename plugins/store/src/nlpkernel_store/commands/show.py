"""`versions show`."""

from __future__ import annotations

import argparse
from typing import Any

from nlpkernel.cli.output import say, table, write_json
from nlpkernel.state import Kind, PerWorker, Replicated, Sharded
from nlpkernel_store.commands.common import (
    facts_of,
    json_argument,
    last_check,
    moment,
    open_versions,
    read,
    run_argument,
    size,
    version_argument,
)
from nlpkernel_store.manifest import Blob, Manifest, Part, StoredLeaf
from nlpkernel_store.references import resolve


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    version_argument(parser)
    json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    """Show."""
    _, catalog = open_versions(args.run)
    entry = resolve(catalog, args.version)
    manifest, parts = read(catalog, entry)
    check = last_check(catalog, entry)
    told = {
        "name": entry.name,
        "id": entry.id,
        "step": entry.step,
        "created": manifest.created,
        "parent": manifest.parent,
        "line": [list(each) for each in manifest.line],
        "tags": sorted(tag for tag, id_ in catalog.tags().items() if id_ == entry.id),
        "metrics": dict(manifest.metrics),
        "bytes": manifest.size,
        "new_bytes": manifest.new,
        "workers": manifest.world,
        "verified": None if check is None else {"at": check.at, "damage": list(check.damage)},
        "packs": dict(manifest.packs),
        "artifacts": {name: _bytes(value) for part in parts for name, value in part.artifacts.items()},
        "leaves": [leaf for rank, part in enumerate(parts) for leaf in _leaves(rank, part)],
        "lock": facts_of(manifest).get("lock"),
    }
    if args.json:
        write_json(told)
    else:
        _say(told, manifest)
    return 0


def _say(told: dict[str, Any], manifest: Manifest) -> None:
    table(
        [
            ("version", told["name"]),
            ("id", told["id"]),
            ("step", told["step"]),
            ("made", moment(told["created"])),
            ("parent", told["parent"] or "none: training began here"),
            ("tags", ", ".join(told["tags"]) or "none"),
            ("metrics", ", ".join(f"{name} {value}" for name, value in told["metrics"].items()) or "none"),
            ("size", f"{size(told['bytes'])}, of which {size(told['new_bytes'])} were written for it"),
            ("workers", told["workers"]),
            ("packs", ", ".join(told["packs"]) or "none"),
            (
                "artifacts",
                ", ".join(f"{name} ({size(n)})" for name, n in told["artifacts"].items()) or "none",
            ),
        ]
    )
    lock = told["lock"]
    if lock:
        activated = lock["activated"]
        releases = {each["distribution"]: each["release"] for each in activated["components"]}
        say(
            f"\nmade by nlpkernel {activated['kernel']}, torch {activated['torch']}, Python {activated['python']}"
        )
        table([("distribution", "release"), *releases.items()], head=True)
    say("")
    rows = [
        (leaf["path"], leaf["type"], leaf["kind"], size(leaf["bytes"]), leaf["note"])
        for leaf in told["leaves"]
    ]
    table([("leaf", "type", "kind", "size", ""), *rows], head=True)


def _leaves(rank: int, part: Part) -> list[dict[str, Any]]:
    found = []
    for leaf in part.leaves:
        content = leaf.content
        found.append(
            {
                "path": leaf.path,
                "worker": rank,
                "type": _type(leaf),
                "kind": _kind(leaf.kind),
                "bytes": 0 if isinstance(content, str) else _bytes(content),
                "note": f"tied to {content}" if isinstance(content, str) else "",
                "pack": content.pack if isinstance(content, Blob) else None,
                "digest": content.digest.hex() if isinstance(content, Blob) else None,
            }
        )
    return found


def _type(leaf: StoredLeaf) -> str:
    if isinstance(leaf.content, str):
        return ""
    return "plain" if leaf.dtype is None else f"{leaf.dtype} {' x '.join(map(str, leaf.shape)) or 'scalar'}"


def _kind(kind: Kind) -> str:
    match kind:
        case Replicated():
            return "replicated"
        case Sharded(shape, offset):
            return f"piece of {' x '.join(map(str, shape))} at {', '.join(map(str, offset))}"
        case PerWorker(worker):
            return f"of worker {worker}"


def _bytes(content: Blob | bytes) -> int:
    return content.size if isinstance(content, Blob) else len(content)
