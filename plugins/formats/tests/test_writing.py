"""Writing Parquet; TFRecord has its own tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nlpkernel.errors import DataError
from nlpkernel_formats import writing
from nlpkernel_formats.columnar import ParquetReader
from nlpkernel_formats.writing import write_parquet, write_tfrecord

Read = Callable[..., list[tuple[Any, ...]]]


def test_batches_become_row_groups_and_are_read_back(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_ROWS", 4)
    path = tmp_path / "a.parquet"
    batches = [{"text": [f"{n}\u2028", None], "n": [n, n + 1], "none": [None, None]} for n in range(5)]
    assert write_parquet(path, batches) == 10
    assert pq.ParquetFile(path).metadata.num_row_groups == 3
    expected = [row for n in range(5) for row in ((f"{n}\u2028", n, None), (None, n + 1, None))]
    assert read(ParquetReader(), path, "text", "n", "none") == [
        (at, *row) for at, row in enumerate(expected, 1)
    ]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_mask()


def test_a_column_whose_first_values_are_none_gets_the_type_of_the_first_that_is_not(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    batches = [{"text": ["a"], "n": [None]}, {"text": ["b"], "n": [3]}, {"text": ["c"], "n": [None]}]
    assert write_parquet(path, batches) == 3
    assert read(ParquetReader(), path, "text", "n") == [(1, "a", None), (2, "b", 3), (3, "c", None)]
    monkeypatch.setattr(writing, "_ROWS", 1)
    write_parquet(path, batches)
    assert read(ParquetReader(), path, "n") == [(1, None), (2, "3"), (3, None)]


def test_a_batch_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for second in ({"text": [["list"]]}, {"other": ["x"]}, {"text": ["a", 1]}):
        with pytest.raises(DataError, match=r"a.parquet: FMT007 the file cannot be written: after record 1"):
            write_parquet(path, [{"text": ["one"]}, second])
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [write_parquet, write_tfrecord])
def test_what_fails_while_records_are_made_leaves_the_old_file(tmp_path: Path, write: Any) -> None:
    def broken() -> Iterator[dict[str, list[str]]]:
        yield {"text": ["one"]}
        raise RuntimeError("no more")

    path = tmp_path / "a"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError, match="no more"):
        write(path, broken())
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]
    with pytest.raises(DataError, match="FMT007 the file cannot be written: No such file"):
        write(tmp_path / "no" / "a", [{"text": ["one"]}])


def test_no_records_are_a_file_without_rows(tmp_path: Path) -> None:
    assert write_parquet(tmp_path / "a.parquet", []) == 0
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_rows == 0


def current_mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
