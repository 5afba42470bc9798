"""Files of records, written aside and renamed when they are complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nlpkernel.aside import aside
from nlpkernel.errors import DataError, NlpkernelError, Place, fail
from nlpkernel_text.reading.packing import packer
from nlpkernel_text.reading.suffixes import unpacked

#: Columns by name, of some records one after the other.
Batch = Mapping[str, Sequence[Any]]


def write_jsonl(path: Path, batches: Iterable[Batch]) -> int:
    """Write records as JSON lines, packed where the name says so (.gz, .bz2, .xz, .zst); how many there are. Raise
    DataError: TXT027 where the file cannot be written, or a value is nothing that JSON has; TXT026 where the library
    that packs is missing."""
    count = 0
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    with _aside(path) as stream:
        for batch in batches:
            names = list(batch)
            lines = []
            for values in zip(*batch.values(), strict=True):
                count += 1
                try:
                    line = encode(dict(zip(names, values, strict=True))).encode("utf-8")
                except (TypeError, ValueError) as error:
                    raise _unwritten(path, f"record {count}: {error}") from error
                lines.append(line)
            lines.append(b"")
            stream.write(b"\n".join(lines))
    return count


@contextmanager
def _aside(path: Path) -> Iterator[BinaryIO]:
    """As `aside`, packed where the name says so. Raise DataError (TXT027) where that fails."""
    try:
        with aside(path) as stream:
            packing = unpacked(path.name)[1]
            if packing is None:
                yield stream
                return
            with packer(stream, packing, str(path)) as packed:
                yield packed
    except OSError as error:
        raise _unwritten(path, error.strerror or str(error)) from error


def _unwritten(path: Path, what: str) -> NlpkernelError:
    return fail(DataError, "TXT027", f"the file cannot be written: {what}", place=Place(str(path)))
