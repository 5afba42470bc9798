"""Columns out of records that are objects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nlpkernel.errors import Place
from nlpkernel.hookspecs.reader import Faults, Records
from nlpkernel_text.reading.faults import snippet

#: Names of what is left out, in the run's report.
BROKEN = "broken records"
EMPTY = "records with an empty text"

#: Half a pair of surrogates, and one that JSON writes.
SURROGATE = re.compile("[\ud800-\udfff]")
ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")


class Picker:
    """Takes the values of `columns` out of objects, for several records one after the other.

    A name is that of a key; where there is none, its dots go into objects inside: "meta.title". values: a list for
    each column.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._paths = [tuple(name.split(".")) for name in columns]
        self.values: list[list[Any]] = [[] for _ in columns]
        self.places: list[int] = []

    def add(self, record: Mapping[str, Any], place: int) -> str | None:
        """Take a record. The column that it lacks, of which nothing is taken then."""
        found = []
        for name, path in zip(self.columns, self._paths, strict=True):
            if name in record:
                found.append(record[name])
                continue
            value: Any = record
            for part in path:
                if not isinstance(value, Mapping) or part not in value:
                    return name
                value = value[part]
            found.append(value)
        for values, value in zip(self.values, found, strict=True):
            values.append(value)
        self.places.append(place)
        return None

    def take(self) -> Records | None:
        """What was taken since the last time; None where it is nothing."""
        if not self.places:
            return None
        records = Records(dict(zip(self.columns, self.values, strict=True)), self.places)
        self.values, self.places = [[] for _ in self.columns], []
        return records


def lacking(faults: Faults, record: Mapping[str, Any], name: str, place: Place) -> None:
    """A record does not have the column `name`."""
    keys = ", ".join(map(str, record)) or "none"
    hint = 'write the right name in `fields` (fields = { text = "..." }), or on_error = "skip"'
    faults.broken(BROKEN, "TXT005", f"the record has no key {name!r}; it has: {keys}", place, hint)


def without_halves(records: Records, shown: str, faults: Faults) -> Records | None:
    """Records without those in which a text has half a surrogate pair, which are broken."""
    good = [True] * len(records.places)
    for name, values in records.columns.items():
        for at, value in enumerate(values):
            if good[at] and isinstance(value, str) and (half := SURROGATE.search(value)) is not None:
                what = f"the value of {name!r} has half a surrogate pair, which is no character"
                place = Place(shown, records.places[at], 1)
                faults.broken(BROKEN, "TXT005", f"{what}: {snippet(value, half.start())}", place)
                good[at] = False
    if all(good):
        return records
    kept = [at for at, whole in enumerate(good) if whole]
    if not kept:
        return None
    columns = {name: [values[at] for at in kept] for name, values in records.columns.items()}
    return Records(columns, [records.places[at] for at in kept])
