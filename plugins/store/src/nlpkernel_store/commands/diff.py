"""`versions diff`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nlpkernel.cli.output import count, say, table, write_json
from nlpkernel.state import PerWorker, Replicated
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.commands.common import (
    facts_of,
    json_argument,
    open_versions,
    read,
    run_argument,
    version_argument,
)
from nlpkernel_store.manifest import Manifest, Part, StoredLeaf
from nlpkernel_store.references import resolve

if TYPE_CHECKING:
    from nlpkernel_store.examine import Mapped

#: A leaf by its path, and the worker that it belongs to, or None where it is the same on all.
_Key = tuple[str, int | None]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    version_argument(parser, "a")
    version_argument(parser, "b")
    json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    """Compare; exit code 1 where they differ."""
    _, catalog = open_versions(args.run)
    first, second = resolve(catalog, args.a), resolve(catalog, args.b)
    left, right = read(catalog, first), read(catalog, second)
    leaves = _leaves(catalog, left[1], right[1])
    other = _other(left[0], right[0])
    same = len(_by_key(left[1]).keys() & _by_key(right[1]).keys()) - sum(not row["only"] for row in leaves)
    if args.json:
        write_json({"a": first.name, "b": second.name, "leaves": leaves, "same": same, "changes": other})
    else:
        say(f"{first.name} and {second.name}: {count(same, 'leaf' if same == 1 else 'leave')} the same")
        if leaves:
            table([("leaf", "difference"), *((_name(row), row["text"]) for row in leaves)], head=True)
        for text in other:
            say(text)
    return 1 if leaves or other else 0


def _other(left: Manifest, right: Manifest) -> list[str]:
    """Settings, releases and surroundings that differ."""
    from nlpkernel.changes import changes

    a, b = facts_of(left), facts_of(right)
    if not all(key in facts for facts in (a, b) for key in ("plan", "lock")):
        return []
    return [change.text for change in changes(a["plan"], a["lock"], b["plan"], b["lock"])]


def _leaves(catalog: Catalog, left: Sequence[Part], right: Sequence[Part]) -> list[dict[str, Any]]:
    from nlpkernel_store.examine import Mapped

    a, b = _by_key(left), _by_key(right)
    maps = Mapped(catalog, left), Mapped(catalog, right)
    rows = []
    for key in dict.fromkeys([*a, *b]):
        found = _difference(a.get(key), b.get(key), maps)
        if found is not None:
            text, most = found
            only = "b" if key not in a else "a" if key not in b else ""
            rows.append({"path": key[0], "worker": key[1], "only": only, "text": text, "max_abs": most})
    return rows


def _difference(
    a: StoredLeaf | None, b: StoredLeaf | None, maps: tuple[Mapped, Mapped]
) -> tuple[str, float | None] | None:
    if a is None or b is None:
        return f"only in the {'second' if a is None else 'first'}", None
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{_type(a)} in the first, {_type(b)} in the second", None
    if _same(a, b):
        return None
    from nlpkernel_store.restore import value

    left, right = value(a, maps[0]), value(b, maps[1])
    if a.dtype is None:
        return None if left == right else ("other values", None)
    from nlpkernel_store.weights import distance

    most = distance(left, right)
    return f"at most {most:.6g}", most


def _same(a: StoredLeaf, b: StoredLeaf) -> bool:
    if isinstance(a.content, bytes) or isinstance(b.content, bytes):
        return a.content == b.content
    return (a.content.digest, a.content.size) == (b.content.digest, b.content.size)  # type: ignore[union-attr]


def _by_key(parts: Sequence[Part]) -> dict[_Key, StoredLeaf]:
    """Leaves of all workers; a tied one stands with what it is tied to."""
    import attrs

    found: dict[_Key, StoredLeaf] = {}
    for rank, part in enumerate(parts):
        by_path = {leaf.path: leaf for leaf in part.leaves}
        for leaf in part.leaves:
            if isinstance(leaf.content, str):
                leaf = attrs.evolve(by_path[leaf.content], path=leaf.path, kind=leaf.kind)
            worker = None if isinstance(leaf.kind, Replicated) else rank
            found[leaf.path, leaf.kind.worker if isinstance(leaf.kind, PerWorker) else worker] = leaf
    return found


def _name(row: dict[str, Any]) -> str:
    return row["path"] if row["worker"] is None else f"{row['path']} (worker {row['worker']})"


def _type(leaf: StoredLeaf) -> str:
    return "plain data" if leaf.dtype is None else f"{leaf.dtype} {list(leaf.shape)}"
