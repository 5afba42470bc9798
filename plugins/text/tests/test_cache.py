"""The token cache."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from nlpkernel import component, setting
from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.plan.train import Train
from nlpkernel_text import cache
from nlpkernel_text.building import Building
from nlpkernel_text.cache import described
from nlpkernel_text.component import Text
from nlpkernel_text.reading.components import Auto, Csv, Tsv
from nlpkernel_text.settings import Source
from nlpkernel_text.tokenizers.components import Bpe, Bytes, Characters

from .conftest import COMPONENTS

Write = Callable[[str, str | bytes], Path]
Open = Callable[..., Any]


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "text").iterdir())


def stream(data: Any, split: str = "train") -> list[int]:
    return data.packers[split].stream.tokens.tolist()  # type: ignore[no-any-return]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each time that an entry is built."""
    seen: list[Path] = []
    build = Building._tokenize

    def counted(self: Building, folder: Path) -> dict[str, Any]:
        seen.append(folder)
        return build(self, folder)

    monkeypatch.setattr(Building, "_tokenize", counted)
    return seen


def test_the_same_text_is_tokenized_once_whatever_its_files_are_called(
    write: Write, open_text: Open, tmp_path: Path, builds: list[Path]
) -> None:
    first = open_text(write("a.txt", "hello"))
    again = open_text(write("b.txt", "hello"))
    assert stream(first) == stream(again) == [*b"hello", 256]
    assert len(builds) == len(entries(tmp_path)) == 1
    assert first.info.fingerprint == again.info.fingerprint
    assert (first.names(0, 0)[0][-7:], again.names(0, 0)[0][-7:]) == ("a.txt:1", "b.txt:1")


def test_settings_that_change_rows_but_no_tokens_share_an_entry(
    write: Write, open_text: Open, builds: list[Path]
) -> None:
    path = write("a.txt", "hello " * 100)
    prints = {
        open_text(path, **values).info.fingerprint
        for values in ({}, {"window": 5}, {"pack": "isolated"}, {"pack": "rows"}, {"sampling": "random"})
    }
    assert len(builds) == 1
    assert len(prints) == 5


def test_content_tokenizer_and_settings_have_entries_of_their_own(
    write: Write, open_text: Open, tmp_path: Path, builds: list[Path]
) -> None:
    path = write("a.txt", "one\ntwo\nthree\n")
    open_text(path)
    open_text(path, format=Auto(documents="line"))
    open_text(path, validation=0.5, split="tail")
    open_text(path, tokenizer=Characters())
    open_text(path, tokenizer=Characters(end=True))
    open_text(path, validation_paths=(write("b.txt", "x"),))
    write("a.txt", "one\ntwo\nthreE\n")
    assert stream(open_text(path))[-3:] == [*b"E\n", 256]
    assert len(builds) == len(entries(tmp_path)) == 7


def test_tokens_are_two_bytes_where_the_vocabulary_fits(
    write: Write, open_text: Open, tmp_path: Path
) -> None:
    data = open_text(write("a.txt", "hello"))
    tokens = data.packers["train"].stream.tokens
    assert tokens.dtype == np.uint16
    assert isinstance(tokens.base, np.memmap)
    assert (entries(tmp_path)[0] / "train.tokens").stat().st_size == 2 * 6


@pytest.mark.parametrize("name", ["train.tokens", "train.starts", "train.where", "tokenizer", "facts.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_entry_is_noticed_said_and_built_again(
    write: Write, open_text: Open, tmp_path: Path, heard: Any, builds: list[Path], name: str, damage: str
) -> None:
    path = write("a.txt", "hello")
    open_text(path)
    file = entries(tmp_path)[0] / name
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[:-1])
    else:
        file.unlink()
    assert stream(open_text(path)) == [*b"hello", 256]
    assert len(builds) == 2
    assert [notice for notice in heard.notices if "damaged" in notice and name in notice]
    heard.events.clear()
    open_text(path)
    assert len(builds) == 2
    assert not heard.notices
    assert len(entries(tmp_path)) == 1


def test_a_build_that_fails_leaves_nothing(write: Write, open_text: Open, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        open_text(write("a.txt", b"x\xff"))
    assert entries(tmp_path) == []


def test_leftovers_of_killed_processes_are_removed_after_a_day(
    write: Write, open_text: Open, tmp_path: Path
) -> None:
    old, new = (tmp_path / "cache" / "text" / f".building-{name}" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 90_000,) * 2)
    open_text(write("a.txt", "hello"))
    assert not old.exists()
    assert new.exists()


def test_a_cache_that_cannot_be_written_is_an_error(write: Write, open_text: Open, make_run: Any) -> None:
    run = make_run()
    run.cache.write_text("a file where a folder should be")
    with pytest.raises(DataError, match="TXT011 the cache cannot be written"):
        open_text(write("a.txt", "hello"), run=run)


def test_a_file_that_changes_while_it_is_read_is_an_error(
    write: Write, open_text: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.txt", "hello")
    build = Building._tokenize

    def changing(self: Building, folder: Path) -> dict[str, Any]:
        facts = build(self, folder)
        path.write_text("hello again")
        return facts

    monkeypatch.setattr(Building, "_tokenize", changing)
    with pytest.raises(DataError, match=r"a\.txt: TXT010"):
        open_text(path)
    assert entries(tmp_path) == []


def _open(folder: Path, path: Path, barrier: Any, results: Any) -> None:
    run = Run(name="test", folder=folder / "run", cache=folder / "cache", train=Train())
    text = Text(paths=(path,), validation=0.0, **{**COMPONENTS, "tokenizer": Bpe(vocabulary=300)})
    barrier.wait()
    data: Any = text.open_data(run)
    results.put((data.info.fingerprint, stream(data)))


def test_processes_that_build_at_once_do_not_clash(write: Write, tmp_path: Path) -> None:
    path = write("a.txt", "the cat sat on the mat\n" * 50)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_open, args=(tmp_path, path, barrier, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert found[0] == found[1]
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(entries(tmp_path)) == 1


def test_of_several_processes_one_builds_and_the_others_wait(
    write: Write, open_text: Open, tmp_path: Path, builds: list[Path]
) -> None:
    """The lock of the one that builds is taken here; nothing is built until it is free."""
    path = write("a.txt", "hello")
    open_text(path)
    (lock,) = (tmp_path / "cache" / "text.locks").iterdir()
    shutil.rmtree(tmp_path / "cache" / "text")
    with ThreadPoolExecutor() as pool:
        with FileLock(lock):
            opened = pool.submit(open_text, path)
            with pytest.raises(TimeoutError):
                opened.result(timeout=0.5)
            assert len(builds) == 1
        assert stream(opened.result(timeout=30)) == [*b"hello", 256]
    assert len(builds) == 2


def test_who_comes_second_takes_what_the_first_left_where_there_are_no_locks(
    write: Write, open_text: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.Cache, "_turn", lambda self, key: nullcontext())
    path = write("a.txt", "hello")
    build = Building._tokenize

    def late(self: Building, folder: Path) -> dict[str, Any]:
        monkeypatch.setattr(Building, "_tokenize", build)
        open_text(path)
        return build(self, folder)

    monkeypatch.setattr(Building, "_tokenize", late)
    assert stream(open_text(path)) == [*b"hello", 256]
    assert len(entries(tmp_path)) == 1


def test_a_tokenizer_is_known_by_its_settings_and_by_the_files_that_they_name(write: Write) -> None:
    @component
    class Foreign:
        """A tokenizer with a file."""

        model: Path = setting(help="a file")

    path = write("model.bin", "one")
    first = described(Foreign(model=path))
    write("model.bin", "two")
    assert described(Foreign(model=path)) != first
    assert described(Bpe()) == described(Bpe())
    assert described(Bpe()) != described(Bpe(vocabulary=300))
    assert described(Bytes()) != described(Characters())


def test_long_work_shows_progress(write: Write, open_text: Open, heard: Any) -> None:
    from nlpkernel.events import Working

    open_text(write("a.txt", "the cat sat \u65e5\u672c on the mat\n" * 50), tokenizer=Bpe(vocabulary=300))
    ends = {event.what: (event.done, event.total) for event in heard.events if isinstance(event, Working)}
    assert list(ends) == ["reading", "checking", "training the tokenizer", "tokenizing"]
    assert all(done == total for done, total in ends.values())


def test_another_release_of_a_library_makes_another_entry(
    write: Write, open_text: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.txt", "abab " * 50)
    open_text(path, tokenizer=Bpe(vocabulary=260))
    open_text(path, tokenizer=Bpe(vocabulary=260))
    assert len(entries(tmp_path)) == 1
    monkeypatch.setattr(cache, "version", lambda name: f"another {name}")
    open_text(path, tokenizer=Bpe(vocabulary=260))
    assert len(entries(tmp_path)) == 2


def test_the_reader_of_each_file_is_in_the_key(write: Write, make_run: Any) -> None:
    write("a.x", "text,n\nhello,1\n")
    write("b.x", "text\tn\nhello\t1\n")
    path = write("b.x", "text\tn\nhello\t1\n").parent

    def key(*readers: Any) -> str:
        names = ("a.x", "b.x")
        sources = [
            Source(paths=(path / name,), format=each) for name, each in zip(names, readers, strict=True)
        ]
        return Building(Text(sources=sources, **{**COMPONENTS, "validation": 0.0}), make_run()).raw_key

    assert key(Csv(), Tsv()) == key(Csv(), Tsv()) != key(Tsv(), Csv())


def test_a_file_that_goes_from_one_source_to_another_makes_other_data(write: Write, open_text: Open) -> None:
    a, b, c = (write(f"{name}.txt", f"{name} " * 50) for name in "abc")

    def fingerprint(*sources: tuple[Path, ...]) -> str:
        given = [Source(paths=paths, weight=1.0) for paths in sources]
        return open_text(sources=given, window=8).info.fingerprint  # type: ignore[no-any-return]

    assert fingerprint((a,), (b, c)) != fingerprint((a, b), (c,))


def test_what_is_being_built_is_not_swept_however_old_its_folder_is(
    write: Write, open_text: Open, tmp_path: Path
) -> None:
    open_text(write("a.txt", "hello"))
    building = tmp_path / "cache" / "text" / ".building-of-another"
    building.mkdir()
    (building / "train.tokens").write_text("being written")
    os.utime(building, (0, 0))
    open_text(write("b.txt", "hello again"))
    assert building.exists()
    os.utime(building / "train.tokens", (0, 0))
    open_text(write("c.txt", "hello once more"))
    assert not building.exists()
