"""Which files a plan means."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.plugins.catalog import Catalog
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.finding import find_files, stdlib_files
from nlpkernel_text.settings import Source as Origin

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


# -- links, pipes and the like ----------------------------------------


def test_a_file_under_several_names_is_taken_once_by_its_first(tmp_path: Path, write: Write) -> None:
    write("a/x.txt", "x")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a" / "x.txt")
    again = tmp_path / "a" / ".." / "a" / "x.txt"
    assert names([tmp_path / "b.txt", again, tmp_path / "a"], tmp_path) == ["b.txt"]
    assert [file.shown for file in find_files([again, tmp_path / "b.txt"], "auto")] == [str(again)]


def test_folders_behind_links_are_read_and_loops_end(tmp_path: Path, write: Write) -> None:
    write("a/x.txt", "x")
    write("other/y.txt", "y")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "a")
    found = ["a/link/y.txt", "a/x.txt"]
    assert sorted(names([tmp_path / "a"], tmp_path)) == found
    assert len(names([tmp_path / "a" / "**" / "*.txt"], tmp_path)) == 2


def test_pipes_and_sockets_in_a_folder_are_no_files(tmp_path: Path, write: Write) -> None:
    write("x.txt", "x")
    os.mkfifo(tmp_path / "pipe.txt")
    assert names([tmp_path], tmp_path) == names([tmp_path / "*.txt"], tmp_path) == ["x.txt"]
    with pytest.raises(DataError, match=r"TXT020 .*pipe.txt of `paths` is no file but a pipe"):
        find_files([tmp_path / "pipe.txt"], "auto")
    with pytest.raises(DataError, match=r"TXT020 /dev/null of `paths` is no file but a device"):
        find_files([Path("/dev/null")], "auto")


@pytest.mark.parametrize("path", ["", "*.txt"])
def test_a_link_in_a_folder_that_leads_nowhere_is_an_error_or_counted(
    tmp_path: Path, write: Write, path: str
) -> None:
    write("x.txt", "x")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    with pytest.raises(
        DataError, match=r"gone.txt: TXT020 .*is a link to a file that is not there"
    ) as caught:
        find_files([tmp_path / path], "auto")
    assert "the link is dangling: it names nowhere" in str(caught.value)
    faults = Faults(True)
    assert [file.path.name for file in find_files([tmp_path / path], "auto", faults=faults)] == ["x.txt"]
    assert faults.counts == {"links that lead nowhere": 1}
    with pytest.raises(DataError, match="TXT001") as caught:
        find_files([tmp_path / "gone.txt"], "auto", faults=faults)
    assert "the link is dangling" in str(caught.value)


def test_the_hint_for_a_format_says_to_install_only_what_is_not_there(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.parquet", "x")
    for names_there, installs in ((["parquet"], False), (["text"], True)):
        monkeypatch.setattr(Catalog, "names", lambda self, point, there=names_there: there)
        with pytest.raises(DataError, match="TXT007") as caught:
            find_files([path], "auto")
        assert 'write `format = "parquet"`' in str(caught.value)
        assert ("pip install nlpkernel-plugin-formats" in str(caught.value)) is installs


def test_what_is_validated_on_is_not_trained_on_under_another_name(
    tmp_path: Path, write: Write, open_text: Callable[..., object]
) -> None:
    path = write("a.txt", "x")
    (tmp_path / "b.txt").symlink_to(path)
    with pytest.raises(DataError, match=r"TXT009 .*b.txt is named by `paths` and by `validation_paths`"):
        open_text(path, validation_paths=(tmp_path / "b.txt",))
    with pytest.raises(DataError, match=r"TXT009 .*b.txt is named by the sources 'one' and '2'"):
        open_text(sources=(Origin(name="one", paths=(path,)), Origin(paths=(tmp_path / "b.txt",))))


def test_a_link_that_leads_nowhere_is_in_the_report(
    tmp_path: Path, write: Write, open_text: Callable[..., object], make_run: Callable[..., Run]
) -> None:
    write("a.txt", "some text that is long enough")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    run = make_run()
    open_text(tmp_path / "*.txt", run=run, on_error="skip", pack="rows", window=64)
    assert run.counts["data text", "links that lead nowhere"] == 1
