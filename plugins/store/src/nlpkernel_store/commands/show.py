"""`versions show`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nlpkernel.cli.output import count, say, table, write_json
from nlpkernel.state import Kind, PerWorker, Replicated, Sharded, Summed
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
        "leaves": _leaves(parts),
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
    table([("leaf", "type", "kind", "size", ""), *_rows(told["leaves"])], head=True)


def _rows(leaves: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A row for a leaf; for what several workers have pieces or addends of, one for all of them."""
    together: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for number, leaf in enumerate(leaves):
        key = (leaf["path"],) if leaf["whole"] is not None else (leaf["path"], number)
        together.setdefault(key, []).append(leaf)
    rows: list[tuple[str, ...]] = []
    for each in together.values():
        first = each[0]
        type_ = first["type"]
        if first["whole"] is not None and type_:
            type_ = _shaped(type_.partition(" ")[0], first["whole"])
        rows.append(
            (first["path"], type_, first["kind"], size(sum(leaf["bytes"] for leaf in each)), first["note"])
        )
    return rows


def _leaves(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """What each worker has of each leaf. whole: the shape of the whole, where that is of all workers together."""
    workers = Counter(leaf.path for part in parts for leaf in part.leaves)
    found = []
    for rank, part in enumerate(parts):
        for leaf in part.leaves:
            content = leaf.content
            found.append(
                {
                    "path": leaf.path,
                    "worker": rank,
                    "type": _type(leaf),
                    "kind": _kind(leaf.kind, workers[leaf.path]),
                    "whole": _whole(leaf),
                    "pieces": _pieces(leaf.kind),
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
    return "plain" if leaf.dtype is None else _shaped(leaf.dtype, leaf.shape)


def _shaped(dtype: str, shape: Sequence[int]) -> str:
    return f"{dtype} {' x '.join(map(str, shape)) or 'scalar'}"


def _kind(kind: Kind, workers: int) -> str:
    match kind:
        case Replicated():
            return "replicated"
        case Sharded():
            return f"sharded over {count(workers, 'worker')}"
        case PerWorker(worker):
            return f"of worker {worker}"
        case Summed():
            return f"summed over {count(workers, 'worker')}"


def _whole(leaf: StoredLeaf) -> list[int] | None:
    match leaf.kind:
        case Sharded(shape):
            return list(shape)
        case Summed():
            return list(leaf.shape)
    return None


def _pieces(kind: Kind) -> list[dict[str, list[int]]] | None:
    if not isinstance(kind, Sharded):
        return None
    return [
        {"at": list(each.at), "offset": list(each.offset), "shape": list(each.shape)} for each in kind.pieces
    ]


def _bytes(content: Blob | bytes) -> int:
    return content.size if isinstance(content, Blob) else len(content)
