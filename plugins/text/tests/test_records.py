"""JSON lines, CSV and TSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_text.codes import CODES
from nlpkernel_text.fields import Fields
from nlpkernel_text.reading import blocks, tables
from nlpkernel_text.reading.by_name import ByName
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.records import read as records_of

Write = Callable[[str, str | bytes], Path]


def read(path: Path, field: str = "text", faults: Faults | None = None) -> list[tuple[str, int]]:
    file = File.at(path, path.suffix[1:], shown=path.name)
    reader, fields = ByName("file").of(file), Fields.of({"text": field})
    faults = faults or Faults(False)
    chunks = (
        fields.chunk(records, file.shown, reader.unit, faults)
        for records in records_of(reader, file, [field], faults)
    )
    return [pair for chunk in chunks for pair in zip(chunk.texts, chunk.lines, strict=True)]


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


# -- JSON lines ----------------------------------------


def test_texts_of_json_lines_keep_every_character(write: Write) -> None:
    odd = 'a\u2028b\x85c\r\n"d"\U0001f600'
    path = write(
        "a.jsonl", "\ufeff" + json.dumps({"text": odd}, ensure_ascii=False) + "\r\n\n" + lines({"text": "x"})
    )
    faults = Faults(False)
    assert read(path, faults=faults) == [(odd, 1), ("x", 3)]
    assert faults.counts == {"blank lines": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "b",}', r"a.jsonl:2:\d+: TXT004 no JSON"),
        ("not json", r"a.jsonl:2:1: TXT004 no JSON: Expecting value at 'not json'"),
        ('["text"]', r"a.jsonl:2:1: TXT004 no JSON object"),
        ('{"body": "b", "id": 1}', r"a.jsonl:2:1: TXT005 the record has no key 'text'; it has: body, id"),
        ('{"text": 3}', r"a.jsonl:2:1: TXT005 the value of 'text' is no text but 3"),
        ('{"text": "x\\ud800"}', r"a.jsonl:2:1: TXT005 .* half a surrogate pair"),
        ('{"text": ' + "1" * 5000 + "}", r"a.jsonl:2:1: TXT004 JSON that cannot be read"),
        ("[" * 200_000, r"a.jsonl:2:1: TXT004 JSON that cannot be read"),
    ],
)
def test_case_d3_a_broken_record_is_an_error_with_its_place_or_skipped_and_counted(
    write: Write, line: str, message: str
) -> None:
    path = write("a.jsonl", lines({"text": "a"}) + line + "\n" + lines({"text": "c"}))
    with pytest.raises(DataError, match=message):
        read(path)
    faults = Faults(True)
    assert read(path, faults=faults) == [("a", 1), ("c", 3)]
    assert faults.counts == {"broken records": 1}


def test_an_empty_text_is_left_out_and_counted(write: Write) -> None:
    faults = Faults(False)
    assert read(write("a.jsonl", lines({"text": ""}, {"text": "b"})), faults=faults) == [("b", 2)]
    assert read(write("a.csv", "text,id\n,1\nb,2\n"), faults=faults) == [("b", 3)]
    assert faults.counts == {"records with an empty text": 2}


# -- CSV and TSV ----------------------------------------


def test_case_d7_csv_with_byte_order_mark_quoted_newline_comma_and_doubled_quote(write: Write) -> None:
    content = (
        '\ufefftext,id\r\n"one\r\ntwo",1\r\n"a, b",2\r\n"say ""hi""",3\r\n5" pipe\rlone,4\r\n"",5\r\nlast,6'
    )
    faults = Faults(False)
    assert read(write("a.csv", content), faults=faults) == [
        ("one\r\ntwo", 2),
        ("a, b", 4),
        ('say "hi"', 5),
        ('5" pipe\rlone', 6),
        ("last", 8),
    ]
    assert faults.counts == {"records with an empty text": 1}


def test_case_d7_a_tsv_whose_second_line_starts_with_one_quote(write: Write) -> None:
    path = write("a.tsv", 'id\ttext\n1\t"one\n"2\ttwo" and ""three""\n3\tthree\n')
    assert read(path) == [('"one', 2), ('two" and ""three""', 3), ("three", 4)]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_case_d7_a_missing_column_lists_those_found(write: Write, name: str) -> None:
    separator = "," if name == "a.csv" else "\t"
    path = write(name, f"\ufefflabel{separator}title{separator}body\n1{separator}a{separator}b\n")
    with pytest.raises(
        DataError, match="TXT006 there is no column 'text'; the columns are: label, title, body"
    ):
        read(path)
    assert read(path, "title") == [("a", 2)]
    assert read(path, "label") == [("1", 2)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a", r"a.csv:3:1: TXT004 the row has 1 columns and the header has 2"),
        ("a,b,c", r"a.csv:3:1: TXT004 the row has 3 columns and the header has 2"),
        ('x,"a"b', r"a.csv:3:6: TXT004 text after the quote that ends a field"),
        ('x,"a', r"a.csv:3:3: TXT004 a quote that does not end"),
    ],
)
def test_a_broken_row_is_an_error_or_skipped_alone(write: Write, row: str, message: str) -> None:
    path = write("a.csv", f"text,id\none,1\n{row}\ntwo,2\nthree,3\n")
    with pytest.raises(DataError, match=message):
        read(path)
    faults = Faults(True)
    assert read(path, faults=faults) == [("one", 2), ("two", 4), ("three", 5)]
    assert faults.counts == {"broken records": 1}


def test_a_quote_that_does_not_end_takes_no_more_than_a_record_may_hold(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LONGEST", 20)
    path = write("a.csv", 'text,id\n"one,1\n' + "".join(f"row {n},{n}\n" for n in range(20)) + '"last",9\n')
    faults = Faults(True)
    assert [text for text, _ in read(path, faults=faults)] == [*(f"row {n}" for n in range(20)), "last"]
    assert faults.counts == {"broken records": 1}


STRAY = 'text,id\n"stray start,1\n' + "".join(f"row {n},{n}\n" for n in range(2, 30))


@pytest.mark.parametrize(
    ("end", "message", "rest", "broken"),
    [
        ('"ok",30\n', r"a.csv:31:2: TXT004 text after the quote that ends a field", [("ok", 31)], 1),
        ('x,"\nlast,31\n', r"a.csv:2:1: TXT004 the row has 1 columns", [("last", 32)], 2),
        ('",30,more\nlast,31\n', r"a.csv:2:1: TXT004 the row has 3 columns", [("last", 32)], 2),
    ],
    ids=["text-after", "narrow", "wide"],
)
def test_a_stray_quote_loses_no_more_than_its_own_line(
    write: Write, end: str, message: str, rest: list[tuple[str, int]], broken: int
) -> None:
    path = write("a.csv", STRAY + end)
    with pytest.raises(DataError, match=message):
        read(path)
    faults = Faults(True)
    assert read(path, faults=faults) == [*((f"row {n}", n + 1) for n in range(2, 30)), *rest]
    assert faults.counts == {"broken records": broken}


def test_a_row_over_several_lines_with_too_many_fields_is_left_out_as_one(write: Write) -> None:
    path = write("a.csv", 'text,id\nfirst,1\n"one\ntwo\nthree",2,3\n"fo\nur",4\n')
    faults = Faults(True)
    assert read(path, faults=faults) == [("first", 2), ("fo\nur", 6)]
    assert faults.counts == {"broken records": 1}


FIELD = st.text(alphabet='ab,"\n\r é\u2028', max_size=8)


@given(
    rows=st.lists(st.tuples(FIELD, FIELD), max_size=6),
    end=st.sampled_from(["\n", "\r\n"]),
    block=st.integers(1, 30),
)
def test_what_pythons_csv_module_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str, block: int
) -> None:
    written = io.StringIO(newline="")
    writer = csv.writer(written, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "other"), *rows])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(written.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        assert [text for text, _ in read(path)] == [text for text, _ in rows if text]
        assert [text for text, _ in read(path, "other")] == [other for _, other in rows if other]


@pytest.mark.parametrize(("name", "code"), [("a.csv", "TXT006"), ("a.jsonl", "TXT005")])
def test_what_is_not_there_is_named_in_fields(write: Write, name: str, code: str) -> None:
    content = "body\nx\n" if name == "a.csv" else lines({"body": "x"})
    with pytest.raises(DataError, match=code) as caught:
        read(write(name, content))
    assert 'fields = { text = "..." }' in str(caught.value)
    assert 'fields = { text = "..." }' in CODES[code][1]
