"""TFRecord files of `tf.train.Example`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from nlpkernel.errors import DataError, Place
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_formats.example import decode
from nlpkernel_formats.framing import BrokenFrame, frames
from nlpkernel_formats.sources import BROKEN, LONGEST, damaged, not_utf8

#: Records and bytes that are given at once.
_RECORDS = 1024
_BYTES = 1 << 22


class TfRecordReader:
    """Examples, whose features are columns. A feature of one value is that value, one of several a list, one of none
    None; bytes are text."""

    unit: Literal["line", "record"] = "record"
    text = False

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        values: list[list[Any]] = [[] for _ in columns]
        places: list[int] = []
        number = size = 0
        failed: BrokenFrame | DataError | None = None
        with source.open() as stream:
            found = frames(stream, LONGEST)
            while True:
                try:
                    frame = next(found, None)
                except (BrokenFrame, DataError) as error:
                    failed = error
                    break
                if frame is None:
                    break
                number += 1
                row = _row(source, columns, faults, number, frame.data, frame.sound)
                if row is not None:
                    for into, value in zip(values, row, strict=True):
                        into.append(value)
                    places.append(number)
                    size += len(frame.data)
                if len(places) >= _RECORDS or size >= _BYTES:
                    yield Records(dict(zip(columns, values, strict=True)), places)
                    values, places, size = [[] for _ in columns], [], 0
        if places:
            yield Records(dict(zip(columns, values, strict=True)), places)
        if isinstance(failed, DataError):
            raise failed
        if failed is not None:
            damaged(source, faults, "TFRecord", failed, number)
        elif not number:
            faults.count("empty files")


def _row(
    source: Source, columns: Sequence[str], faults: Faults, number: int, data: bytes, sound: bool
) -> list[Any] | None:
    """The values of a record, or None and a fault."""
    place = Place(source.shown, number, 1)
    try:
        if not sound:
            raise ValueError("its checksum does not fit")
        features = decode(data, columns)
    except ValueError as error:
        message = f"record {number} is no tf.train.Example: {error}"
        faults.broken(BROKEN, "FMT003", message, place)
        return None
    row: list[Any] = []
    for name in columns:
        if name not in features:
            keys = ", ".join(sorted(features)) or "none"
            faults.broken(BROKEN, "FMT004", f"record {number} has no feature {name!r}; it has: {keys}", place)
            return None
        values: list[Any] = list(features[name] or ())
        try:
            values = [value.decode("utf-8") if isinstance(value, bytes) else value for value in values]
        except UnicodeDecodeError as error:
            if name not in source.binary:
                not_utf8(source, faults, name, number, error.object)
                return None
        row.append(values[0] if len(values) == 1 else values or None)
    return row
