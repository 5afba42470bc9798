"""Parquet files, and Arrow's own files and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.ipc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_formats.batches import ROWS, paths_of, records_of
from nlpkernel_formats.sources import damaged, seekable

#: What pyarrow raises for files that it cannot read. Most of its own errors are ValueErrors or OSErrors.
_ERRORS = (pa.ArrowException, OSError, EOFError)
#: Bytes of a batch, by the average row of its file, and bytes that are read at once.
_BATCH = 1 << 24
_READ = 1 << 20
#: How an Arrow file begins; a stream does not.
_MAGIC = b"ARROW1\0\0"


class _Columnar:
    """What the readers here share: numbered records of formats that are no text."""

    unit: Literal["line", "record"] = "record"
    text = False


class ParquetReader(_Columnar):
    """Parquet files, of which only the columns that are asked for are read, in batches of about 16 MB."""

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        done = 0
        with seekable(source) as place:
            try:
                with _parquet(place) as file:
                    paths = paths_of(file.schema_arrow, columns, source)
                    if not file.metadata.num_rows:
                        faults.count("empty files")
                    batches = file.iter_batches(
                        batch_size=_rows(file.metadata), columns=[".".join(path) for path in paths]
                    )
                    for records in records_of(batches, columns, paths, source, faults):
                        done = records.places[-1]
                        yield records
            except _ERRORS as error:
                damaged(source, faults, "Parquet", error, done)


class ArrowReader(_Columnar):
    """Arrow IPC files (which Feather version 2 is) and streams."""

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        done = 0
        with seekable(source) as place:
            try:
                with _opened(place) as file, _reader(file) as reader:
                    paths = paths_of(reader.schema, columns, source)
                    for records in records_of(_batches(reader), columns, paths, source, faults):
                        done = records.places[-1]
                        yield records
                    if not done:
                        faults.count("empty files")
            except _ERRORS as error:
                damaged(source, faults, "Arrow", error, done)


def _parquet(place: Path | BinaryIO) -> Any:
    # Pages that have no checksum are read without.
    return pq.ParquetFile(place, buffer_size=_READ, pre_buffer=False, page_checksum_verification=True)


def _rows(metadata: Any) -> int:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    size: int = sum(group.total_byte_size for group in groups)
    rows: int = metadata.num_rows
    return max(1, min(ROWS, _BATCH * rows // max(1, size)))


def _opened(place: Path | BinaryIO) -> Any:
    return pa.memory_map(str(place)) if isinstance(place, Path) else pa.PythonFile(place, "r")


def _reader(file: Any) -> Any:
    head = file.read(len(_MAGIC))
    file.seek(0)
    return pyarrow.ipc.open_file(file) if head == _MAGIC else pyarrow.ipc.open_stream(file)


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pyarrow.ipc.RecordBatchFileReader):
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from reader
