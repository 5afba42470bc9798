"""Writing JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.jsonl import Jsonl
from nlpkernel_text.reading.records import read
from nlpkernel_text.reading.writing import write_jsonl

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.lists(st.tuples(TEXT, st.integers() | st.none()), max_size=4), max_size=4))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int | None]]]
) -> None:
    path = tmp_path_factory.mktemp("written") / "a.jsonl"
    columns: list[dict[str, list[Any]]] = [
        {"text": [t for t, _ in batch], "n": [n for _, n in batch]} for batch in batches
    ]
    expected = [record for batch in batches for record in batch]
    assert write_jsonl(path, columns) == len(expected)
    found = read(Jsonl(), File.at(path, "jsonl"), ["text", "n"], Faults(False))
    assert [
        row for records in found for row in zip(records.columns["text"], records.columns["n"], strict=True)
    ] == expected


@pytest.mark.parametrize(
    ("end", "magic"),
    [("gz", b"\x1f\x8b"), ("BZ2", b"BZh"), ("xz", b"\xfd7zXZ"), ("zst", b"\x28\xb5\x2f\xfd")],
)
def test_a_file_is_packed_as_its_name_says(tmp_path: Path, end: str, magic: bytes) -> None:
    if end == "zst" and sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    path, again = tmp_path / f"a.jsonl.{end}", tmp_path / f"b.jsonl.{end}"
    for each in (path, again):
        assert write_jsonl(each, [{"text": ["one"] * 99}, {"text": ["two"]}]) == 100
    assert path.read_bytes().startswith(magic)
    assert path.read_bytes() == again.read_bytes()
    found = read(Jsonl(), File.at(path, "jsonl"), ["text"], Faults(False))
    assert [text for records in found for text in records.columns["text"]] == ["one"] * 99 + ["two"]


def test_without_its_library_nothing_is_packed_with_zstd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataError, match=r"TXT026 .*is packed with zstd, and this Python has no module"):
        write_jsonl(tmp_path / "a.jsonl.zst", [{"text": ["one"]}])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800"], ids=["object", "nan", "half"])
def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"before")
    with pytest.raises(DataError, match=r"a\.jsonl: TXT027 the file cannot be written: record 2"):
        write_jsonl(path, [{"text": ["fine"]}, {"text": [value]}])
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]


def test_what_fails_while_records_are_made_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, list[str]]]:
        yield {"text": ["one"]}
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_jsonl(tmp_path / "a.jsonl", broken())
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match="TXT027 the file cannot be written: No such file"):
        write_jsonl(tmp_path / "no" / "a.jsonl", [])
