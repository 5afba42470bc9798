"""Files of records, written aside and renamed when they are complete."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from nlpkernel.errors import DataError, NlpkernelError, Place, fail

#: Columns by name, of some records one after the other.
Batch = Mapping[str, Sequence[Any]]


def write_jsonl(path: Path, batches: Iterable[Batch]) -> int:
    """Write records as JSON lines, packed with gzip where the name ends in .gz; how many there are. Raise DataError
    (TXT027) where the file cannot be written, or a value is nothing that JSON has."""
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
    """A file beside `path`, which takes its name when all is written, and is removed when that fails."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb", buffering=1 << 20) as stream:
                if path.suffix == ".gz":
                    # Without a time: the same records are the same bytes.
                    with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as packed:
                        yield cast(BinaryIO, packed)
                else:
                    yield stream
                stream.flush()
                os.fsync(stream.fileno())
            # As any new file of this user's; mkstemp's own is for nobody else.
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as error:
        raise _unwritten(path, error.strerror or str(error)) from error


def _unwritten(path: Path, what: str) -> NlpkernelError:
    return fail(DataError, "TXT027", f"the file cannot be written: {what}", place=Place(str(path)))
