"""What the readers share: files as libraries want them, and what is said of those that they refuse."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nlpkernel.errors import DataError, NlpkernelError, Place, fail
from nlpkernel.hookspecs.reader import Faults, Source

#: Names of what is left out, in the run's report.
BROKEN = "broken records"
DAMAGED = "damaged files"

#: Longest record or page, in bytes.
LONGEST = 1 << 28

_BLOCK = 1 << 20


@contextmanager
def seekable(source: Source) -> Iterator[Path | BinaryIO]:
    """The file for a library that goes back and forth in it: its path; else a stream that seeks; else a copy on disk,
    for what is packed, which is removed afterwards."""
    if (local := source.local) is not None:
        yield local
        return
    with source.open() as stream:
        if stream.seekable():
            yield stream
            return
        with tempfile.TemporaryFile(prefix="nlpkernel-") as copy:
            while block := stream.read(_BLOCK):
                copy.write(block)
            copy.seek(0)
            yield copy


def damaged(source: Source, faults: Faults, kind: str, error: object, record: int = 0) -> None:
    """A file cannot be read, or not from record number `record` on. Raise DataError, or count it."""
    before = f" after record {record}" if record else ""
    reason = " ".join(str(error).split()) or type(error).__name__
    faults.broken(
        DAMAGED,
        "FMT001",
        f"the file cannot be read as {kind}{before}: {reason}",
        Place(source.shown),
        'get the file again, write the `format` that it has, or on_error = "skip"',
    )


def no_column(source: Source, name: str, found: Sequence[str]) -> NlpkernelError:
    """The error for a column that a file does not have."""
    return fail(
        DataError,
        "FMT002",
        f"there is no column {name!r}; the columns are: {', '.join(found) or 'none'}",
        place=Place(source.shown),
        hint="write the column's name, with dots for columns inside columns",
    )


def not_utf8(source: Source, faults: Faults, name: str, number: int, value: bytes) -> None:
    """A value of record `number` that should be text is none. Raise DataError, or count it."""
    shown = value[:16].hex(" ") + ("..." if len(value) > 16 else "")
    faults.broken(
        BROKEN,
        "FMT003",
        f"the value of {name!r} in record {number} is not UTF-8: the bytes {shown}",
        Place(source.shown, number, 1),
    )
