"""Files of records, written aside and renamed when they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from nlpkernel.aside import aside
from nlpkernel.errors import DataError, NlpkernelError, Place, fail
from nlpkernel_formats.example import encode
from nlpkernel_formats.framing import framed

#: Columns by name, of some records one after the other.
Batch = Mapping[str, Sequence[Any]]

#: Rows and bytes of a row group of Parquet.
_ROWS = 1 << 17
_BYTES = 1 << 27


def write_tfrecord(path: Path, batches: Iterable[Batch]) -> int:
    """Write records as `tf.train.Example`; how many there are. A value is a text, bytes, a number, a list of such, or
    None for a feature without values. Raise DataError (FMT007) where the file cannot be written."""
    count = 0
    with _aside(path) as stream:
        for batch in batches:
            names = list(batch)
            for values in zip(*batch.values(), strict=True):
                try:
                    record = encode({name: _list(value) for name, value in zip(names, values, strict=True)})
                except (TypeError, ValueError, AttributeError, OverflowError) as error:
                    raise _unwritten(path, f"record {count + 1}: {error}") from error
                except Exception as error:
                    # struct.error is derived from Exception itself.
                    raise _unwritten(path, f"record {count + 1}: {error}") from error
                stream.write(framed(record))
                count += 1
    return count


def write_parquet(path: Path, batches: Iterable[Batch], *, compression: str = "zstd") -> int:
    """Write records as Parquet; how many there are. The first batch says the columns, and the first value of each its
    type; a column that is None in all of the first row group counts as text. Raise DataError (FMT007) where the file
    cannot be written or a later batch does not fit."""
    count = 0
    with _aside(path) as stream:
        writer: Any = None
        schema: Any = None
        held: list[Any] = []
        rows = size = 0
        try:
            for batch in batches:
                try:
                    made = pa.Table.from_pydict({name: list(values) for name, values in batch.items()})
                    schema = made.schema if schema is None else _learnt(schema, made.schema)
                    held.append(made.cast(schema))
                except (pa.ArrowException, TypeError, ValueError) as error:
                    raise _unwritten(path, f"after record {count}: {error}") from error
                count += made.num_rows
                rows += made.num_rows
                size += made.nbytes
                if rows >= _ROWS or size >= _BYTES:
                    if writer is None:
                        schema = _schema(schema)
                        writer = pq.ParquetWriter(stream, schema, compression=compression)
                    writer.write_table(_joined(held, schema))
                    held, rows, size = [], 0, 0
            if writer is None:
                schema = _schema(pa.schema([]) if schema is None else schema)
                writer = pq.ParquetWriter(stream, schema, compression=compression)
            if held:
                writer.write_table(_joined(held, schema))
        finally:
            if writer is not None:
                writer.close()
    return count


def _list(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


def _learnt(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """A schema with the types of another for columns that were None so far."""
    if schema.names != other.names:
        return schema
    pairs = zip(schema, other, strict=True)
    return pa.schema([after if pa.types.is_null(before.type) else before for before, after in pairs])


def _joined(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([table.cast(schema) for table in tables])


def _schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in schema])


@contextmanager
def _aside(path: Path) -> Iterator[BinaryIO]:
    """As `aside`. Raise DataError (FMT007) where that fails."""
    try:
        with aside(path) as stream:
            yield stream
    except OSError as error:
        raise _unwritten(path, error.strerror or str(error)) from error


def _unwritten(path: Path, what: str) -> NlpkernelError:
    return fail(DataError, "FMT007", f"the file cannot be written: {what}", place=Place(str(path)))
