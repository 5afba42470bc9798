"""Records as JSON lines."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nlpkernel.errors import DataError, Place, fail


def write_jsonl(path: Path, batches: Iterable[Mapping[str, Sequence[Any]]]) -> int:
    """Write records as an object a line; how many there are. With a name that ends in .gz packed with gzip, the same
    bytes for the same records. The file is whole or not there. Raise DataError (TXT029) where it cannot be written."""
    count = 0
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            stream: Any = file
            if path.suffix == ".gz":
                stream = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
            for batch in batches:
                for values in zip(*batch.values(), strict=True):
                    record = dict(zip(batch, values, strict=True))
                    stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
                    count += 1
            if stream is not file:
                stream.close()
        os.replace(aside, path)
    except (OSError, TypeError, UnicodeEncodeError) as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)
    return count


def _unwritten(path: Path, error: Exception) -> Exception:
    return fail(DataError, "TXT029", f"the file cannot be written: {error}", place=Place(str(path)))
