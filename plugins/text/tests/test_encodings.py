"""Text in other encodings."""

from __future__ import annotations

import codecs
import io
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_text.reading import detecting, encoding
from nlpkernel_text.reading.encoding import known, transcode
from nlpkernel_text.reading.faults import Damaged, Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.jsonl import Jsonl
from nlpkernel_text.reading.plain import Lines, Whole
from nlpkernel_text.reading.records import read

Write = Callable[[str, str | bytes], Path]

#: The standard library's own texts in 15 encodings with their twins in UTF-8; some packagings leave its tests out.
CJK = Path(sysconfig.get_path("stdlib"), "test", "cjkencodings")
GERMAN = "Gr\u00fc\u00dfe aus K\u00f6ln: \u00fcber sieben Br\u00fccken mu\u00dft du gehn.\n" * 20


def text_of(path: Path, encoding: str, faults: Faults | None = None) -> str:
    file = File.at(path, "text", encoding=encoding, shown=path.name)
    found = read(Whole(), file, ["text"], faults or Faults(False))
    return "".join(text for records in found for text in records.columns["text"])


@pytest.mark.skipif(not CJK.is_dir(), reason="this Python comes without its tests")
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_the_standard_librarys_texts_equal_their_twins(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(encoding, "READ", block)
    names = [path.name.removesuffix("-utf8.txt") for path in sorted(CJK.glob("*-utf8.txt"))]
    assert len(names) >= 14
    for name in names:
        twin = (CJK / f"{name}-utf8.txt").read_bytes().decode("utf-8")
        assert text_of(CJK / f"{name}.txt", name) == twin, name


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(
    text=TEXT,
    name=st.sampled_from(["utf-16", "utf-32", "utf-16-le", "utf-32-be", "utf-7", "gb18030", "utf-8-sig"]),
    block=st.integers(1, 20),
)
def test_what_python_encodes_is_read_back(text: str, name: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "READ", block)
        found = transcode(io.BytesIO(text.encode(name)), name, "a").read().decode("utf-8")
    # A byte-order mark at the start is none of the text.
    assert found == text.removeprefix("\ufeff")


@pytest.mark.parametrize("setting", ["utf-8", "auto"])
@pytest.mark.parametrize("name", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_honoured_and_counted(write: Write, setting: str, name: str) -> None:
    path = write("a.txt", GERMAN.encode(name))
    faults = Faults(False)
    assert text_of(path, setting, faults) == GERMAN
    assert faults.counts == ({} if name == "utf-8-sig" else {f"files read as {name}": 1})
    big = write("b.txt", codecs.BOM_UTF16_BE + GERMAN.encode("utf-16-be"))
    assert text_of(big, setting) == GERMAN


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_case_d3_bytes_that_the_encoding_does_not_have_are_an_error_with_their_place(
    write: Write, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(encoding, "READ", block)
    cases = {
        "cp1252": (b"one\r\ntwo \x81 three\n", "a.txt:2:5: TXT023 not cp1252 at byte 9: the bytes 81"),
        "shift_jis": (
            b"one\n\x93\xfa\x96{ \xff\n",
            "a.txt:2:4: TXT023 not shift_jis at byte 9: the bytes ff",
        ),
        "utf-16-le": (
            "one\ntw".encode("utf-16-le") + b"\x00\xdc\x00\x00",
            "a.txt:2:3: TXT023 not utf-16-le at byte 12",
        ),
        "ascii": (b"one\ntwo\xe9", "a.txt:2:4: TXT023 not ascii at byte 7: the bytes e9"),
        "big5": (b"one\n\xa4", "a.txt:2:1: TXT023 not big5 at byte 4"),
    }
    for name, (data, message) in cases.items():
        with pytest.raises(DataError) as caught:
            text_of(write("a.txt", data), name)
        assert str(caught.value).startswith(message)
        faults = Faults(True)
        lines = read(
            Lines(), File.at(write("a.txt", data), "text", shown="a.txt", encoding=name), ["text"], faults
        )
        assert [text for records in lines for text in records.columns["text"]] == ["one"]
        assert faults.counts == {f"files that are not {name}": 1, f"files read as {name}": 1}


def test_encodings_that_are_none_are_refused(write: Write) -> None:
    path = write("a.txt", "x")
    for name in ("no-such", "base64", "rot13", "hex", "idna\0"):
        assert known(name) is None
        with pytest.raises(DataError, match=r"TXT023 there is no encoding"):
            text_of(path, name)
    assert known("windows-1252") == "cp1252"
    assert known("UTF8") == "utf-8"


@given(st.binary(max_size=300), st.sampled_from(["latin-1", "cp1252", "big5", "euc-jp", "koi8-r", "gb18030"]))
def test_reversible_means_the_same_bytes(data: bytes, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detecting, "_READ", 7)
        said = detecting._reversible(lambda: io.BytesIO(data), name)
    try:
        same = data.decode(name).encode(name) == data
    except UnicodeError:
        same = False
    assert said == same


def test_auto_finds_an_encoding_out_and_counts_it(write: Write) -> None:
    pytest.importorskip("charset_normalizer")
    ascii_first = "plain ascii\n" * 60_000
    russian = "Широкая электрификация южных губерний даст мощный толчок.\n" * 9
    for text, name in ((russian, "cp1251"), (ascii_first + russian, "cp1251"), (GERMAN, "cp1252")):
        path = write("a.txt", text.encode(name))
        faults = Faults(False)
        found = text_of(path, "auto", faults)
        (counted,) = faults.counts
        used = counted.removeprefix("files read as ")
        # Whatever it is called, nothing is lost.
        assert found.encode(used) == path.read_bytes()
        if text is not GERMAN:
            assert found == text
    faults = Faults(False)
    assert text_of(write("b.txt", GERMAN), "auto", faults) == GERMAN
    assert not faults.counts


def test_what_is_no_text_in_any_encoding_is_refused_by_name(write: Write) -> None:
    pytest.importorskip("charset_normalizer")
    path = write("a.bin", bytes(range(256)) * 40)
    with pytest.raises(DataError, match=r"a\.bin: TXT024 the encoding cannot be found out"):
        text_of(path, "auto")
    faults = Faults(True)
    assert text_of(path, "auto", faults) == ""
    assert faults.counts == {"files of no known encoding": 1}


def test_records_in_other_encodings_have_their_lines(write: Write) -> None:
    path = write("a.jsonl", '{"text": "Gr\u00fc\u00dfe"}\n\n{"text": "\u00e4"}\n{broken\n'.encode("latin-1"))
    faults = Faults(True)
    found = list(read(Jsonl(), File.at(path, "jsonl", encoding="latin-1", shown="a.jsonl"), ["text"], faults))
    assert [(list(each.columns["text"]), list(each.places)) for each in found] == [
        (["Gr\u00fc\u00dfe", "\u00e4"], [1, 3])
    ]
    assert "a.jsonl:4:2: TXT004 no JSON" in faults.first


def test_the_failure_of_a_stream_comes_after_what_it_had() -> None:
    stream = transcode(io.BytesIO(b"good\n\x81"), "cp1252", "a")
    assert stream.read(3) == b"goo"
    assert stream.read() == b"d\n"
    with pytest.raises(Damaged):
        stream.read()
