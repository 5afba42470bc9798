"""Parquet, Arrow and datasets folders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_formats.columnar import ArrowReader, ParquetReader
from nlpkernel_formats.datasets import DatasetsReader

Read = Callable[..., list[tuple[Any, ...]]]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
RECORDS = st.lists(st.tuples(st.none() | TEXT, st.integers(-(2**40), 2**40), TEXT), max_size=12)


def table(records: list[tuple[str | None, int, str]], kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "text": pa.array([text for text, _, _ in records], kind),
            "label": pa.array([label for _, label, _ in records], pa.int64()),
            "meta": pa.array(
                [{"title": title} for _, _, title in records], pa.struct([("title", pa.string())])
            ),
        }
    )


def write_ipc(path: Path, data: pa.Table, stream: bool, rows: int = 1000) -> None:
    make = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with make(str(path), data.schema) as writer:
        writer.write_table(data, max_chunksize=rows)


@settings(max_examples=40, deadline=None)
@given(
    records=RECORDS,
    kind=st.sampled_from(
        [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()]
    ),
    how=st.sampled_from(["parquet", "stream", "file"]),
    packed=st.booleans(),
    group=st.integers(1, 5),
)
def test_what_pyarrow_writes_is_read_back(
    records: list[tuple[str | None, int, str]],
    kind: pa.DataType,
    how: str,
    packed: bool,
    group: int,
    read: Read,
) -> None:
    if kind == pa.binary():
        data = table([(None, label, title) for _, label, title in records], pa.string())
        data = data.set_column(0, "text", pa.array([text and text.encode() for text, _, _ in records], kind))
        records = [(text or (None if text is None else ""), *rest) for text, *rest in records]  # type: ignore[misc]
    else:
        data = table(records, kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        if how == "parquet":
            pq.write_table(data, path, row_group_size=group)
        else:
            write_ipc(path, data, how == "stream", group)
        reader = ParquetReader() if how == "parquet" else ArrowReader()
        found = read(reader, path, "text", "label", "meta.title", packed=packed)
    assert found == [(number, *record) for number, record in enumerate(records, 1)]


@pytest.mark.parametrize("how", ["parquet", "arrow"])
def test_large_batches_come_in_parts_of_bounded_size(
    tmp_path: Path, source: Any, faults: Any, how: str
) -> None:
    data = pa.table({"text": [f"{number} " * 4000 for number in range(1500)]})
    path = tmp_path / "a"
    if how == "parquet":
        pq.write_table(data, path)
    else:
        write_ipc(path, data, False, 1500)
    reader = ParquetReader() if how == "parquet" else ArrowReader()
    sizes = [len(records.places) for records in reader.read(source(path), ["text"], faults)]
    assert sum(sizes) == 1500
    # About 20 kB a record, and 16 MB a batch.
    assert max(sizes) <= (1000 if how == "parquet" else 1024)


@pytest.mark.parametrize("reader", [ParquetReader(), ArrowReader()])
def test_a_missing_column_lists_those_found(tmp_path: Path, read: Read, reader: Any) -> None:
    data = table([("a", 1, "b")], pa.string())
    pq.write_table(data, tmp_path / "a.parquet")
    write_ipc(tmp_path / "a.arrow", data, False)
    path = tmp_path / ("a.parquet" if isinstance(reader, ParquetReader) else "a.arrow")
    for name in ("body", "meta.name", "text.title", ""):
        with pytest.raises(DataError, match=r"a\.\w+: FMT002 there is no column .*: text, label, meta.title"):
            read(reader, path, name)


def test_a_null_around_a_value_is_null_and_a_dot_in_a_name_is_a_dot(tmp_path: Path, read: Read) -> None:
    data = pa.table({"meta": [{"title": "a"}, None], "a.b": ["x", "y"]})
    pq.write_table(data, tmp_path / "a.parquet")
    write_ipc(tmp_path / "a.arrow", data, False)
    expected = [(1, "a", "x"), (2, None, "y")]
    assert read(ArrowReader(), tmp_path / "a.arrow", "meta.title", "a.b") == expected
    assert read(ParquetReader(), tmp_path / "a.parquet", "meta.title", "a.b") == expected


def test_of_columns_of_one_name_the_first_is_read(tmp_path: Path, read: Read) -> None:
    data = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    write_ipc(tmp_path / "a.arrow", data, False)
    assert read(ArrowReader(), tmp_path / "a.arrow", "text") == [(1, "a")]


def test_bytes_that_are_no_text_break_their_record_alone(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    pq.write_table(pa.table({"text": [b"good", b"\xff\xfe", b"fine"]}), tmp_path / "a.parquet")
    # A column of texts with bytes that are none: what writers without checks leave.
    buffer = pa.array([b"good", b"\xff\xfe", b"fine"]).buffers()
    wrong = pa.Array.from_buffers(pa.string(), 3, buffer)
    write_ipc(tmp_path / "a.arrow", pa.table({"text": wrong}), False)
    for reader, name in ((ParquetReader(), "a.parquet"), (ArrowReader(), "a.arrow")):
        with pytest.raises(
            DataError, match=rf"{name}:2:1: FMT003 the value of 'text' in record 2 is not UTF-8"
        ):
            read(reader, tmp_path / name, "text")
        faults = make_faults(True)
        assert read(reader, tmp_path / name, "text", faults=faults) == [(1, "good"), (3, "fine")]
        assert faults.counts == {"broken records": 1}


@pytest.mark.parametrize("how", ["parquet", "file", "stream"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_file_is_an_error_with_its_name_or_counted(
    tmp_path: Path, read: Read, make_faults: Any, how: str, packed: bool
) -> None:
    data = table([(f"text {number} " * 50, number, "") for number in range(3000)], pa.string())
    path = tmp_path / "a"
    if how == "parquet":
        pq.write_table(data, path, row_group_size=500)
    else:
        write_ipc(path, data, how == "stream", 500)
    reader = ParquetReader() if how == "parquet" else ArrowReader()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a: FMT001 the file cannot be read as"):
        read(reader, path, "text", packed=packed)
    faults = make_faults(True)
    found = read(reader, path, "text", faults=faults, packed=packed)
    assert faults.counts == {"damaged files": 1}
    # Of a stream what comes before stays; the others say at their end what is in them.
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    assert bool(found) == (how == "stream")
    path.write_bytes(b"no such format at all, but long enough to be one")
    with pytest.raises(DataError, match=r"a: FMT001"):
        read(reader, path, "text", packed=packed)


def test_a_changed_byte_of_a_page_with_a_checksum_is_noticed(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "a.parquet"
    data = pa.table({"text": [f"text {number}" for number in range(1000)]})
    pq.write_table(data, path, compression="none", use_dictionary=False, write_page_checksum=True)
    whole = path.read_bytes()
    at = whole.index(b"text 500")
    path.write_bytes(whole[:at] + b"T" + whole[at + 1 :])
    with pytest.raises(DataError, match=r"a.parquet: FMT001 the file cannot be read as Parquet"):
        read(ParquetReader(), path, "text")


def test_case_d6_an_empty_file_is_counted(tmp_path: Path, read: Read, make_faults: Any) -> None:
    data = table([], pa.string())
    pq.write_table(data, tmp_path / "a.parquet")
    write_ipc(tmp_path / "a.arrow", data, True)
    faults = make_faults()
    assert not read(ParquetReader(), tmp_path / "a.parquet", "text", faults=faults)
    assert not read(ArrowReader(), tmp_path / "a.arrow", "text", faults=faults)
    assert faults.counts == {"empty files": 2}


# -- datasets ----------------------------------------


def saved(folder: Path, texts: list[str], split: str | None, shards: int = 2) -> None:
    """As `save_to_disk` writes it."""
    import json

    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{shards:05d}.arrow" for number in range(shards)]
    for number, name in enumerate(names):
        write_ipc(folder / name, pa.table({"text": texts[number::shards]}), True)
    state = {"_data_files": [{"filename": name} for name in names], "_split": split}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def all_of(read: Read, reader: Any, folder: Path, faults: Any = None) -> list[str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [text for path in paths for _, text in read(reader, path, "text", faults=faults)]


def test_a_saved_dataset_is_its_arrow_files(tmp_path: Path, read: Read) -> None:
    saved(tmp_path / "set", ["a", "b", "c"], "train")
    assert all_of(read, DatasetsReader(), tmp_path / "set") == ["a", "c", "b"]


def test_of_several_splits_one_has_to_be_named(tmp_path: Path, read: Read, make_faults: Any) -> None:
    for split in ("train", "test"):
        saved(tmp_path / "set" / split, [f"{split} {number}" for number in range(3)], split)
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(
        DataError, match=r"FMT005 the dataset has the splits train, test, and the plan does not"
    ):
        all_of(read, DatasetsReader(), tmp_path / "set")
    faults = make_faults()
    assert all_of(read, DatasetsReader("test"), tmp_path / "set", faults) == ["test 0", "test 2", "test 1"]
    assert faults.counts == {"files of other splits": 2}
    with pytest.raises(DataError, match=r"FMT005 there is no split 'dev'; there are: train, test"):
        all_of(read, DatasetsReader("dev"), tmp_path / "set")


def test_an_incomplete_dataset_is_refused(tmp_path: Path, read: Read) -> None:
    saved(tmp_path / "set", ["a", "b"], None)
    (tmp_path / "set" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(
        DataError, match=r"FMT005 state.json names data-00001-of-00002.arrow, which is not there"
    ):
        all_of(read, DatasetsReader(), tmp_path / "set")
    (tmp_path / "set" / "state.json").unlink()
    with pytest.raises(DataError, match=r"FMT005 there is no state.json beside it; a single Arrow file is"):
        all_of(read, DatasetsReader(), tmp_path / "set")


def test_what_the_library_itself_saves_is_read(tmp_path: Path, read: Read) -> None:
    library = pytest.importorskip("datasets")
    library.disable_progress_bars()
    texts = [f"text {number}\u2028" for number in range(7)]
    made = library.Dataset.from_dict({"text": texts})
    library.DatasetDict({"train": made, "test": made.select([3, 1])}).save_to_disk(
        str(tmp_path / "set"), num_shards={"train": 2, "test": 1}
    )
    assert all_of(read, DatasetsReader("train"), tmp_path / "set") == texts
    assert all_of(read, DatasetsReader("test"), tmp_path / "set") == [texts[3], texts[1]]
