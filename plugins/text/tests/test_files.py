"""Which files a plan means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nlpkernel.errors import DataError
from nlpkernel_text.reading.finding import find_files, stdlib_files

Write = Callable[[str, str], Path]


def names(paths: list[Path], root: Path, format: str = "auto") -> list[str]:
    return [file.path.relative_to(root).as_posix() for file in find_files(paths, format)]


def test_a_folder_is_all_its_files_by_name_without_hidden_ones(tmp_path: Path, write: Write) -> None:
    for name in ("b/z.txt", "b/a.txt", "a.txt", ".hidden", "b/.git/x.txt"):
        write(name, "x")
    assert names([tmp_path], tmp_path) == ["a.txt", "b/a.txt", "b/z.txt"]


def test_patterns_keep_the_order_of_the_plan_and_take_each_file_once(tmp_path: Path, write: Write) -> None:
    for name in ("b.txt", "a.txt", "c/d/e.txt", "a.md"):
        write(name, "x")
    assert names([tmp_path / "b.txt", tmp_path / "**/*.txt"], tmp_path) == ["b.txt", "a.txt", "c/d/e.txt"]


def test_brackets_in_the_name_of_a_folder_are_no_pattern(tmp_path: Path, write: Write) -> None:
    write("set[1]/a.txt", "x")
    write("set[1]/b[2].txt", "x")
    assert names([tmp_path / "set[1]" / "*.txt"], tmp_path) == ["set[1]/a.txt", "set[1]/b[2].txt"]
    assert names([tmp_path / "set[1]" / "b[2].txt"], tmp_path) == ["set[1]/b[2].txt"]


def test_the_end_of_a_name_says_how_a_file_is_read(tmp_path: Path, write: Write) -> None:
    for name in ("a.txt", "b.jsonl", "c.CSV", "d.tsv", "e", "f.py"):
        write(name, "x")
    formats = [file.format for file in find_files([tmp_path], "auto")]
    assert formats == ["text", "jsonl", "csv", "tsv", "text", "text"]
    assert {file.format for file in find_files([tmp_path], "text")} == {"text"}


def test_what_is_no_text_by_its_name_is_refused_unless_the_plan_says_what_it_is(
    tmp_path: Path, write: Write
) -> None:
    path = write("a.parquet", "x")
    with pytest.raises(DataError, match=r"TXT007 .*a\.parquet does not look like text"):
        find_files([path], "auto")
    assert find_files([path], "text")[0].format == "text"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing.txt", "nothing.txt of `paths` is not there"),
        ("*.txt", "no file fits the pattern"),
        ("empty", "holds no files"),
        ("corpsu.md", "did you mean corpus.md"),
        ("no/such/*.txt", "no file fits the pattern"),
    ],
)
def test_a_path_that_names_nothing_is_an_error(tmp_path: Path, write: Write, path: str, message: str) -> None:
    write("corpus.md", "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="TXT001") as caught:
        find_files([tmp_path / path], "auto")
    assert message in str(caught.value)


def test_the_standard_library_is_there_without_tests_in_a_fixed_order() -> None:
    files = stdlib_files()
    shown = [file.shown for file in files]
    assert "stdlib/textwrap.py" in shown
    assert shown == sorted(shown)
    assert not [name for name in shown if "/test/" in name or "site-packages" in name]
    assert len(files) > 300
