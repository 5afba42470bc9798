"""`versions diff`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nlpkernel.cli.output import count, say, table, write_json
from nlpkernel.state import PerWorker, Sharded
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.commands.common import (
    facts_of,
    json_argument,
    open_versions,
    read,
    run_argument,
    version_argument,
)
from nlpkernel_store.manifest import Blob, Manifest, Part
from nlpkernel_store.references import resolve
from nlpkernel_store.shares import Share, shares

if TYPE_CHECKING:
    from nlpkernel_store.restore import Values

#: A leaf by its path, and the worker that it belongs to, or None where it is of all together.
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
    from nlpkernel_store.restore import Values

    a, b = _by_key(left), _by_key(right)
    values = Values(shares(left), Mapped(catalog, left)), Values(shares(right), Mapped(catalog, right))
    rows = []
    for key in dict.fromkeys([*a, *b]):
        found = _difference(a.get(key), b.get(key), values)
        if found is not None:
            text, most = found
            only = "b" if key not in a else "a" if key not in b else ""
            rows.append({"path": key[0], "worker": key[1], "only": only, "text": text, "max_abs": most})
    return rows


def _difference(
    a: Sequence[Share] | None, b: Sequence[Share] | None, values: tuple[Values, Values]
) -> tuple[str, float | None] | None:
    if a is None or b is None:
        return f"only in the {'second' if a is None else 'first'}", None
    if _type(a) != _type(b):
        return f"{_type(a)} in the first, {_type(b)} in the second", None
    if _stored(a) == _stored(b):
        return None
    from nlpkernel_store.weights import distance, equal, whole

    # Other workers may hold other pieces of the same, so that digests say nothing.
    left, right = (whole(each.of(given)) for each, given in zip(values, (a, b), strict=True))
    if a[0].leaf.dtype is None:
        return None if left == right else ("other values", None)
    if equal(left, right):
        return None
    most = distance(left, right)
    return f"at most {most:.6g}", most


def _stored(given: Sequence[Share]) -> list[object]:
    """What the value is made of: equal for two values that are the same in the same layout."""
    contents = (share.leaf.content for share in given)
    return [
        (share.kind, (content.digest, content.size) if isinstance(content, Blob) else content)
        for share, content in zip(given, contents, strict=True)
    ]


def _by_key(parts: Sequence[Part]) -> dict[_Key, list[Share]]:
    """Leaves of all workers; a tied one stands with what it is tied to."""
    found: dict[_Key, list[Share]] = {}
    for path, given in shares(parts).items():
        for share in given:
            worker = share.kind.worker if isinstance(share.kind, PerWorker) else None
            found.setdefault((path, worker), []).append(share)
    return found


def _name(row: dict[str, Any]) -> str:
    return row["path"] if row["worker"] is None else f"{row['path']} (worker {row['worker']})"


def _type(given: Sequence[Share]) -> str:
    first = given[0]
    if first.leaf.dtype is None:
        return "plain data"
    shape = first.kind.shape if isinstance(first.kind, Sharded) else first.leaf.shape
    return f"{first.leaf.dtype} {list(shape)}"
