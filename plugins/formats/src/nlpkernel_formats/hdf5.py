"""HDF5 files whose datasets are columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import h5py  # type: ignore[import-untyped]

from nlpkernel.errors import DataError, NlpkernelError, Place, fail
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_formats.sources import damaged, no_column, not_utf8, seekable

#: Rows that are read at once, about, and the most where the file's own chunks are longer.
_ROWS = 1024
_MOST = 1 << 14


class Hdf5Reader:
    """Datasets with one row for each record. A name with dots or slashes goes into groups. Texts of variable and of
    fixed length are decoded as UTF-8; further dimensions become lists."""

    unit: Literal["line", "record"] = "record"
    text = False

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        done = 0
        with seekable(source) as place:
            try:
                with h5py.File(place, "r") as file:
                    datasets = [_dataset(source, file, name) for name in columns]
                    rows = _length(source, columns, datasets)
                    if not rows:
                        faults.count("empty files")
                    step = _step(datasets)
                    for start in range(0, rows, step):
                        stop = min(start + step, rows)
                        records = _records(source, faults, columns, datasets, start, stop)
                        done = stop
                        if records.places:
                            yield records
            except (OSError, RuntimeError, EOFError) as error:
                # h5py tells of broken metadata by RuntimeError, of broken data by OSError.
                damaged(source, faults, "HDF5", error, done)


def _dataset(source: Source, file: Any, name: str) -> Any:
    """The dataset of a column. Raise DataError where there is none, or it lies in another file."""
    path = name if name in file else name.replace(".", "/")
    group, parts = file, path.split("/")
    for part in parts:
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) and part in group else None
        if isinstance(link, h5py.ExternalLink):
            raise _wrong(source, f"the column {name!r} is a link to another file")
        group = group.get(part) if link is not None else None
    if not isinstance(group, h5py.Dataset) or not group.shape:
        raise no_column(source, name, _names(file))
    # A link inside the file may lead over one that leaves it.
    if group.external or group.is_virtual or group.file.filename != file.filename:
        raise _wrong(source, f"the data of the column {name!r} lie in other files")
    return group


def _names(file: Any) -> list[str]:
    """The datasets of a file, by name."""
    found: list[str] = []

    def visit(name: str, each: object) -> None:
        if isinstance(each, h5py.Dataset) and each.shape:
            found.append(name.replace("/", "."))

    file.visititems(visit)
    return found


def _length(source: Source, columns: Sequence[str], datasets: Sequence[Any]) -> int:
    lengths = {name: dataset.shape[0] for name, dataset in zip(columns, datasets, strict=True)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise _wrong(source, f"the columns have different numbers of rows: {shown}")
    return next(iter(lengths.values()), 0)


def _step(datasets: Sequence[Any]) -> int:
    """Rows that are read at once: whole chunks, which are unpacked as a whole."""
    longest = max((dataset.chunks[0] for dataset in datasets if dataset.chunks), default=_ROWS)
    return min(longest, _MOST) if longest > _ROWS else longest * (_ROWS // longest)


def _records(
    source: Source, faults: Faults, columns: Sequence[str], datasets: Sequence[Any], start: int, stop: int
) -> Records:
    values = [dataset[start:stop].tolist() for dataset in datasets]
    places = range(start + 1, stop + 1)
    bad: set[int] = set()
    for name, each in zip(columns, values, strict=True):
        for at, value in enumerate(each):
            if isinstance(value, bytes) and at not in bad:
                try:
                    each[at] = value.decode("utf-8")
                except UnicodeDecodeError:
                    not_utf8(source, faults, name, places[at], value)
                    bad.add(at)
    if not bad:
        return Records(dict(zip(columns, values, strict=True)), places)
    kept = [at for at in range(len(places)) if at not in bad]
    columns_ = {name: [each[at] for at in kept] for name, each in zip(columns, values, strict=True)}
    return Records(columns_, [places[at] for at in kept])


def _wrong(source: Source, what: str) -> NlpkernelError:
    return fail(DataError, "FMT006", what, place=Place(source.shown))
