"""Names of versions, as people give them, to versions. Light: no torch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from nlpkernel.errors import CheckpointError, fail
from nlpkernel_store import rotation
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.manifest import Damaged, Entry, NewerFormat

_NAME = re.compile(r"(\d+)-([0-9a-f]{1,64})")
_DIGEST = re.compile(r"[0-9a-f]{4,64}")
#: Versions that a message lists.
_LISTED = 12


def resolve(catalog: Catalog, reference: str | None = None) -> Entry:
    """The version that a reference names: None or "newest", "best", a tag, a name, a step of the current line, or the
    first digits (4 or more) of an id. Raise CheckpointError (STO004), listing what there is, where that is none or
    several.
    """
    entries = catalog.entries()
    if not entries:
        raise fail(
            CheckpointError, "STO004", f"there is no version in {catalog.files.describe()}", owner=OWNER
        )
    if reference in (None, "newest"):
        head = catalog.head()
        assert head is not None, "there are versions"
        return head
    if reference == "best":
        return best(catalog)
    tagged = catalog.tags().get(reference)
    if tagged is not None:
        return _one(catalog, reference, entries, lambda entry: entry.id == tagged)
    if match := _NAME.fullmatch(reference):
        step, digits = int(match[1]), match[2]
        return _one(
            catalog, reference, entries, lambda entry: entry.step == step and entry.id.startswith(digits)
        )
    if reference.isdecimal():
        line = [entry for entry in current(catalog) if entry.step == int(reference)]
        if line:
            return line[-1]
    if _DIGEST.fullmatch(reference) and any(entry.id.startswith(reference) for entry in entries):
        return _one(catalog, reference, entries, lambda entry: entry.id.startswith(reference))
    raise _unknown(catalog, reference, entries)


def current(catalog: Catalog) -> list[Entry]:
    """The versions of the current line, in order; none where the newest cannot be read."""
    head = catalog.head()
    try:
        return catalog.history(head) if head else []
    except (Damaged, NewerFormat):
        return []


def best(catalog: Catalog) -> Entry:
    """The best version of the current line. Raise CheckpointError (STO004) where none has a value to be judged by."""
    line = current(catalog)
    main = catalog.manifest(line[-1]).main if line else ()
    names = rotation.best(catalog.candidates(line), main)
    if not names:
        metric = f" of {main[0]}" if main else ""
        raise fail(
            CheckpointError,
            "STO004",
            f"no version of the current line has a value{metric} to be best by",
            owner=OWNER,
        )
    return next(entry for entry in line if entry.id == names[0])


def _one(catalog: Catalog, reference: str, entries: Sequence[Entry], fits: Callable[[Entry], bool]) -> Entry:
    found = [entry for entry in entries if fits(entry)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise _unknown(catalog, reference, entries)
    raise fail(
        CheckpointError,
        "STO004",
        f"{reference!r} fits {len(found)} versions: {_list(entry.name for entry in found)}",
        owner=OWNER,
        hint="give more digits",
    )


def _unknown(catalog: Catalog, reference: str, entries: Sequence[Entry]) -> CheckpointError:
    names = [entry.name for entry in entries]
    elsewhere = [entry.name for entry in entries if str(entry.step) == reference]
    hint = None
    if elsewhere:
        hint = f"another line has that step: {_list(elsewhere)}"
    elif near := difflib.get_close_matches(reference, [*names, *catalog.tags()], n=1, cutoff=0.5):
        hint = f"did you mean {near[0]}?"
    return fail(  # type: ignore[return-value]
        CheckpointError,
        "STO004",
        f"there is no version {reference!r} in {catalog.files.describe()}; there are {_list(reversed(names))}",
        owner=OWNER,
        hint=hint,
    )


def _list(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more
