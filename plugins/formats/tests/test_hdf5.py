"""HDF5 files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_formats.hdf5 import Hdf5Reader

Read = Callable[..., list[tuple[Any, ...]]]

# HDF5's texts end at a NUL.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)


@settings(max_examples=30, deadline=None)
@given(
    records=st.lists(st.tuples(TEXT, st.integers(-9, 9), TEXT), min_size=1, max_size=9),
    packed=st.booleans(),
    chunk=st.integers(1, 4) | st.none(),
)
def test_what_h5py_writes_is_read_back(
    read: Read, records: list[tuple[str, int, str]], packed: bool, chunk: int | None
) -> None:
    texts, labels, titles = (list(each) for each in zip(*records, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.h5")
        with h5py.File(path, "w") as file:
            chunks = None if chunk is None else (min(chunk, len(records)),)
            file.create_dataset("text", data=texts, dtype=h5py.string_dtype(), chunks=chunks)
            file.create_dataset("label", data=labels)
            longest = max(1, *(len(title.encode()) for title in titles))
            file["meta/title"] = np.array([title.encode() for title in titles], dtype=f"S{longest}")
        found = read(Hdf5Reader(), path, "text", "label", "meta.title", packed=packed)
    assert found == [(number, *record) for number, record in enumerate(records, 1)]


def test_chunks_of_any_size_and_further_dimensions_are_read_in_order(
    tmp_path: Path, source: Any, faults: Any
) -> None:
    for chunk in (300, 1024, 5000, 40_000):
        path = tmp_path / f"{chunk}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("n", data=np.arange(40_000), chunks=(chunk,))
            file["pair"] = np.arange(80_000).reshape(-1, 2)
        read = list(Hdf5Reader().read(source(path), ["n", "pair"], faults))
        assert [n for records in read for n in records.columns["n"]] == list(range(40_000))
        assert read[0].columns["pair"][1] == [2, 3]
        assert max(len(records.places) for records in read) <= 1 << 14


def test_a_missing_column_lists_those_found(tmp_path: Path, read: Read) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["meta/title"] = ["a"]
        file["body"] = ["b"]
        file["version"] = 3
    for name in ("text", "meta", "version", "meta.title.x", ""):
        with pytest.raises(
            DataError, match=r"FMT002 there is no column .*; the columns are: body, meta.title"
        ):
            read(Hdf5Reader(), tmp_path / "a.h5", name)


def test_columns_of_different_lengths_and_data_in_other_files_are_refused(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["text"] = ["secret"]
    with h5py.File(path, "w") as file:
        file["text"] = ["a", "b"]
        file["label"] = [1]
        file["link"] = h5py.ExternalLink("other.h5", "/text")
        file["over"] = h5py.SoftLink("/link")
        file.create_dataset("raw", (1,), "u1", external=[(str(tmp_path / "other.h5"), 0, 1)])
    with pytest.raises(
        DataError, match="FMT006 the columns have different numbers of rows: text has 2, label has 1"
    ):
        read(Hdf5Reader(), path, "text", "label")
    with pytest.raises(DataError, match="FMT006 the column 'link' is a link to another file"):
        read(Hdf5Reader(), path, "link")
    with pytest.raises(DataError, match="FMT006 the data of the column 'over' lie in other files"):
        read(Hdf5Reader(), path, "over")
    with pytest.raises(DataError, match="FMT006 the data of the column 'raw' lie in other files"):
        read(Hdf5Reader(), path, "raw")


def test_bytes_that_are_no_text_break_their_record_alone(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["text"] = np.array([b"good", b"\xff\xfe", b"fine"])
    with pytest.raises(DataError, match=r"a.h5:2:1: FMT003 the value of 'text' in record 2 is not UTF-8"):
        read(Hdf5Reader(), path, "text")
    faults = make_faults(True)
    assert read(Hdf5Reader(), path, "text", faults=faults) == [(1, "good"), (3, "fine")]
    assert faults.counts == {"broken records": 1}


def test_a_damaged_file_is_an_error_with_its_name_or_counted(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["text"] = [f"text {number}" for number in range(1000)]
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"nothing like it"):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"a.h5: FMT001 the file cannot be read as HDF5"):
            read(Hdf5Reader(), path, "text")
        faults = make_faults(True)
        assert not read(Hdf5Reader(), path, "text", faults=faults)
        assert faults.counts == {"damaged files": 1}
