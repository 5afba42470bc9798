"""Plain text as documents: lines, encodings, blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel.hookspecs.reader import Reader
from nlpkernel_text.chunks import Chunk
from nlpkernel_text.reading import blocks, plain
from nlpkernel_text.reading.faults import Faults, Skipped
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.plain import Lines, Paragraphs, Whole, cut
from nlpkernel_text.reading.records import read

Write = Callable[[str, str | bytes], Path]
Make = Callable[[], Reader]

#: All that other tools take for the end of a line, and a character of four bytes.
ODD = "a\u2028b\u2029c\x85d\x0be\x0cf\rg\U0001f600h"


def file_of(path: Path) -> File:
    return File(str(path), path.name, "text")


def chunks(reader: Make, path: Path, faults: Faults | None = None) -> list[Chunk]:
    records = read(reader(), file_of(path), ["text"], faults or Faults(False))
    return [Chunk(list(each.columns["text"]), each.places, each.opens, each.closes) for each in records]


def texts(found: list[Chunk]) -> list[str]:
    """Documents, put together from their pieces."""
    documents: list[str] = []
    open_ = False
    for chunk in found:
        assert chunk.opens == (not open_)
        first, *rest = chunk.texts
        if chunk.opens:
            documents.append(first)
        else:
            documents[-1] += first
        documents += rest
        open_ = not chunk.closes
    assert not open_
    return documents


class Endless:
    """A file of one line that does not end."""

    shown = "a.txt"
    local = None

    def __init__(self) -> None:
        self.taken = 0

    def open(self) -> BinaryIO:
        return cast(BinaryIO, self)

    def read(self, size: int) -> bytes:
        self.taken += size
        return b"x" * size

    def __enter__(self) -> Endless:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def test_a_line_that_does_not_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 100)
    monkeypatch.setattr(blocks, "LONGEST", 1000)
    endless = Endless()
    with pytest.raises(DataError, match=r"a.txt:1:1: TXT004 the line has more than 1,000 bytes"):
        list(blocks.whole_lines(endless, Faults(False)))
    assert endless.taken == 1100


@pytest.mark.parametrize("block", [1, 7, 40, 1000])
@pytest.mark.parametrize("end", ["", "\n", "\nlast"])
def test_a_line_that_is_too_long_is_left_out_and_counted(
    write: Write, monkeypatch: pytest.MonkeyPatch, block: int, end: str
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", block)
    monkeypatch.setattr(blocks, "LONGEST", 50)
    path = write("a.txt", b"one\n" + b"x" * 2000 + b"\n\xff\ntwo\n" + b"y" * 2000 + end.encode())
    faults = Faults(True)
    found = chunks(Lines, path, faults)
    assert [pair for each in found for pair in zip(each.texts, each.lines, strict=True)] == [
        ("one", 1),
        ("two", 4),
        *([("last", 6)] if "last" in end else []),
    ]
    assert faults.counts == {"lines that are too long": 2, "lines that are not UTF-8": 1}


def test_bytes_after_a_line_that_is_too_long_are_counted_from_the_start(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 8)
    monkeypatch.setattr(blocks, "LONGEST", 50)
    faults = Faults(True)
    # The first fault is kept, and that is the long line.
    faults.broken = lambda *said: told.append(said)  # type: ignore[method-assign]
    told: list[tuple[object, ...]] = []
    chunks(Lines, write("a.txt", b"x" * 100 + b"\nab\xffc\n"), faults)
    assert [str(each[2])[:25] for each in told] == ["the line has more than 50", "not UTF-8 at byte 103: th"]


def test_case_d2_only_lf_and_crlf_end_a_line(write: Write) -> None:
    path = write("a.txt", f"{ODD}\r\n{ODD}\n{ODD}\r")
    assert texts(chunks(Lines, path)) == [ODD, ODD, f"{ODD}\r"]
    assert texts(chunks(Paragraphs, path)) == [f"{ODD}\n{ODD}\n{ODD}\r"]
    # A whole file is what it is, CRLF and all.
    assert texts(chunks(Whole, path)) == [f"{ODD}\r\n{ODD}\n{ODD}\r"]


@pytest.mark.parametrize("reader", [Whole, Lines, Paragraphs])
@pytest.mark.parametrize("block", [1, 2, 3, 4, 5, 7])
def test_case_d3_characters_and_line_ends_across_a_read_edge_stay_whole(
    write: Write, monkeypatch: pytest.MonkeyPatch, reader: Make, block: int
) -> None:
    path = write("a.txt", f"\ufeffé\r\n{ODD}\r\n\n日本語\n")
    whole = [(texts(chunks(reader, path)), next(list(chunk.lines) for chunk in chunks(reader, path))[0])]
    monkeypatch.setattr(blocks, "BLOCK", block)
    found = chunks(reader, path)
    assert [(texts(found), next(iter(found[0].lines)))] == whole
    assert "\ufeff" not in "".join(texts(found))


@given(
    text=st.text(alphabet="aé\U0001f600\r\n \u2028", max_size=60),
    block=st.integers(1, 9),
)
def test_reading_does_not_depend_on_the_size_of_a_block(
    tmp_path_factory: pytest.TempPathFactory, text: str, block: int
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a.txt"
    path.write_bytes(text.encode())
    expected = text.replace("\r\n", "\n").split("\n")
    expected = [line for line in expected if line and not line.isspace()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        assert texts(chunks(Lines, path)) == expected
        whole = texts(chunks(Whole, path))
        assert whole == ([text] if text and not text.isspace() else [])
        paragraphs = texts(chunks(Paragraphs, path))
        assert [line for each in paragraphs for line in each.split("\n")] == expected


def test_case_d3_a_file_that_ends_in_half_a_character_is_an_error_with_its_place(write: Write) -> None:
    path = write("a.txt", b"one\ntwo \xe6\x97")
    for reader in (Whole, Lines, Paragraphs):
        with pytest.raises(DataError) as caught:
            chunks(reader, path)
        assert str(caught.value).startswith(
            "a.txt:2:5: TXT003 not UTF-8 at byte 8: the bytes e6 97 and then the end"
        )
        assert "'two '" in str(caught.value)


def test_case_d3_skip_leaves_out_the_line_the_paragraph_or_the_file_and_counts_it(write: Write) -> None:
    path = write("a.txt", b"one\ntwo \xff\n\nthree\r\nfour\n")
    faults = Faults(True)
    assert texts(chunks(Lines, path, faults)) == ["one", "three", "four"]
    assert faults.counts == {"lines that are not UTF-8": 1, "blank lines": 1}
    assert faults.first.startswith("a.txt:2:5: TXT003 not UTF-8 at byte 8")
    assert texts(chunks(Paragraphs, path, Faults(True))) == ["three\nfour"]
    faults = Faults(True)
    with pytest.raises(Skipped):
        chunks(Whole, path, faults)
    assert faults.counts == {"files that are not UTF-8": 1}


@pytest.mark.parametrize("block", [4, 1 << 20])
def test_the_place_of_a_bad_byte_is_right_in_later_blocks(
    write: Write, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path = write("a.txt", b"\xef\xbb\xbfone\n\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xff\n")
    monkeypatch.setattr(blocks, "BLOCK", block)
    for reader in (Whole, Lines):
        with pytest.raises(DataError, match=r"a.txt:2:5: TXT003 not UTF-8 at byte 15"):
            chunks(reader, path)


def test_case_d6_empty_files_and_blank_lines_are_counted(write: Write) -> None:
    faults = Faults(False)
    assert not chunks(Whole, write("a.txt", ""), faults)
    assert not chunks(Whole, write("b.txt", " \n\t\n"), faults)
    assert not chunks(Lines, write("c.txt", "\n \n\r\n\u2028\n"), faults)
    assert faults.counts == {"empty files": 2, "blank lines": 4}


def test_lines_know_their_numbers(write: Write) -> None:
    found = chunks(Lines, write("a.txt", "one\n\nthree\n"))
    assert [(chunk.texts, list(chunk.lines)) for chunk in found] == [(["one", "three"], [1, 3])]
    found = chunks(Paragraphs, write("b.txt", "\none\ntwo\n\n\nsix"))
    assert [(chunk.texts, list(chunk.lines)) for chunk in found] == [(["one\ntwo"], [2]), (["six"], [6])]


def test_a_long_file_comes_in_pieces_that_are_cut_between_lines(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "PIECE", 50)
    text = "".join(f"line {number}\n" for number in range(100)) + "\n  indented\n\n"
    found = chunks(Whole, write("a.txt", text))
    assert texts(found) == [text]
    assert len(found) > 10
    lines = text.split("\n")
    for chunk in found:
        assert chunk.texts[0].split("\n")[0] == lines[chunk.lines[0] - 1]


@given(st.text(alphabet="ab \n\r", max_size=300), st.integers(1, 40))
def test_pieces_are_the_text_and_are_cut_only_between_two_visible_characters(text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "PIECE", piece)
        found = cut(text)
    assert "".join(found) == text
    for left, right in itertools.pairwise(found):
        assert left[-1] == "\n"
        assert not left[-2].isspace()
        assert not right[0].isspace()


def test_a_text_without_a_place_to_cut_is_cut_at_the_longest_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PIECE", 10)
    monkeypatch.setattr(plain, "LONGEST", 100)
    assert [len(piece) for piece in cut("x" * 250)] == [100, 100, 50]
