"""Arrow's batches as records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_formats.sources import no_column, not_utf8

#: Rows that become Python objects at once.
ROWS = 1024

Path = tuple[str, ...]


def paths_of(schema: pa.Schema, columns: Sequence[str], source: Source) -> list[Path]:
    """Where the columns are: a name of the file's, or one inside it for each dot. Raise DataError for one that is
    not."""
    return [_path(schema, name, source) for name in columns]


def records_of(
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    paths: Sequence[Path],
    source: Source,
    faults: Faults,
) -> Iterator[Records]:
    """The columns of batches as Python values, some rows at a time. Binary values are text; one that is not UTF-8
    breaks its record, or stays as it is in a column of `Source.binary`."""
    number = 1
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            part = batch.slice(start, ROWS)
            values = [_values(_inside(part, path)) for path in paths]
            places: Sequence[int] = range(number, number + part.num_rows)
            number += part.num_rows
            bad: set[int] = set()
            for name, each in zip(columns, values, strict=True):
                bad |= _decode(source, faults, name, each, places, bad)
            if bad:
                kept = [at for at in range(len(places)) if at not in bad]
                values = [[each[at] for at in kept] for each in values]
                places = [places[at] for at in kept]
            if places:
                yield Records(dict(zip(columns, values, strict=True)), places)


def _path(schema: pa.Schema, name: str, source: Source) -> Path:
    if name in schema.names:
        return (name,)
    parts = tuple(name.split("."))
    kind: Any = pa.struct(list(schema))
    for part in parts:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            raise no_column(source, name, list(_named(schema)))
        kind = kind.field(part).type
    return parts


def _named(fields: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    """The names of columns, with those inside them."""
    for field in fields:
        if pa.types.is_struct(field.type):
            inside = [field.type.field(at) for at in range(field.type.num_fields)]
            yield from _named(inside, f"{before}{field.name}.")
        else:
            yield before + field.name


def _inside(batch: pa.RecordBatch, path: Path) -> pa.Array:
    # The first of several columns of one name.
    array = batch.column(batch.schema.names.index(path[0]))
    for part in path[1:]:
        # Unlike StructArray.field it is null where what is around it is.
        array = pc.struct_field(array, [part])
    return array


def _values(array: pa.Array) -> list[Any]:
    """Python values. Texts that are not UTF-8 stay bytes."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        array, kind = array.storage, array.storage.type
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        try:
            # Some times faster than to_pylist, which makes a scalar of each.
            found: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        except (UnicodeDecodeError, pa.ArrowException):
            binary = pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
            found = array.cast(binary).to_pylist()
        return found
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not array.null_count:
        numbers: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return numbers
    values: list[Any] = array.to_pylist()
    return values


def _decode(
    source: Source, faults: Faults, name: str, values: list[Any], places: Sequence[int], bad: set[int]
) -> set[int]:
    """Make texts of bytes, in place; the indices of those that are none, where they have to be."""
    wrong: set[int] = set()
    if bytes not in set(map(type, values)):
        return wrong
    for at, value in enumerate(values):
        if isinstance(value, bytes) and at not in bad:
            try:
                values[at] = value.decode("utf-8")
            except UnicodeDecodeError:
                if name not in source.binary:
                    not_utf8(source, faults, name, places[at], value)
                    wrong.add(at)
    return wrong
