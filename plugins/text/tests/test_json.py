"""JSON files, and columns out of records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_text.fields import Fields
from nlpkernel_text.reading import blocks, jsonfile
from nlpkernel_text.reading.delimited import Table
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.jsonfile import Json
from nlpkernel_text.reading.jsonl import Jsonl
from nlpkernel_text.reading.plain import Lines
from nlpkernel_text.reading.records import read

Write = Callable[[str, str | bytes], Path]


def rows(reader: Any, path: Path, *columns: str, faults: Faults | None = None) -> list[tuple[Any, ...]]:
    file = File.at(path, "json", shown=path.name)
    return [
        row
        for records in read(reader, file, columns, faults or Faults(False))
        for row in zip(records.places, *(records.columns[name] for name in columns), strict=True)
    ]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(
    records=st.lists(st.fixed_dictionaries({"text": TEXT, "other": VALUE}), max_size=6),
    indent=st.sampled_from([None, 0, 2]),
    ascii_=st.booleans(),
    keyed=st.booleans(),
    path=st.sampled_from(["", "data", "a.b"]),
    block=st.integers(1, 40),
)
def test_what_pythons_json_module_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[dict[str, Any]],
    indent: int | None,
    ascii_: bool,
    keyed: bool,
    path: str,
    block: int,
) -> None:
    whole: Any = {f"{number}\u2028": record for number, record in enumerate(records)} if keyed else records
    for name in reversed(path.split(".") if path else ()):
        whole = {"before": [1, {"x": "]}"}], name: whole, "after": 12}
    file = tmp_path_factory.mktemp("json") / "a.json"
    file.write_text(json.dumps(whole, indent=indent, ensure_ascii=ascii_), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        found = rows(Json(path), file, "text", "other")
    assert [row[1:] for row in found] == [(each["text"], each["other"]) for each in records]
    assert [number for number, *_ in found] == list(range(1, len(records) + 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "a"},\n {"text": "b",}]', r"a.json:2:1[56]: TXT004 no JSON"),
        ('[{"text": "a"}\n {"text": "b"}]', r"a.json:2:2: TXT004 a comma or \] is expected at "),
        ('[{"text": "a"},\n', r"a.json:2:1: TXT004 a value is expected"),
        ('[{"text": "a"}', r"a.json:1:15: TXT004 a comma or \] is expected"),
        ('[{"text": "a"},\n{"text": "b', r"a.json:2:\d+: TXT004 no JSON: Unterminated string"),
        ('{"one": {"text": "a"},\n"two" {"text": "b"}}', r"a.json:2:7: TXT004 a colon is expected"),
        ('[{"text": "a"}]\n [{"text": "b"}]', r"a.json:2:2: TXT004 more follows the end of the records at "),
        ('{"one": {"text": "a"}} oops', r"a.json:1:24: TXT004 more follows the end of the records"),
        ('"text"', r"a.json:1:1: TXT004 this is no array of records, and no object of them"),
    ],
)
def test_case_d3_a_mistake_in_a_file_is_an_error_with_its_place_or_ends_it(
    write: Write, content: str, message: str
) -> None:
    path = write("a.json", content)
    with pytest.raises(DataError, match=message):
        rows(Json(), path, "text")
    faults = Faults(True)
    assert rows(Json(), path, "text", faults=faults) == ([] if content == '"text"' else [(1, "a")])
    assert faults.counts == {"files with broken JSON": 1}


def test_a_record_that_is_none_is_left_out_alone(write: Write) -> None:
    path = write("a.json", '[{"text": "a"},\n3,\n{"body": 1},\n{"text": "\\ud800"},\n{"text": "b"}]')
    for at, message in (
        (2, "TXT004 record 1 is no JSON object but 3"),
        (3, "TXT005 .* has no key 'text'; it has: body"),
    ):
        with pytest.raises(DataError, match=message):
            rows(
                Json(), write("b.json", "[" + path.read_text().split("\n")[at - 1].rstrip(",") + "]"), "text"
            )
    faults = Faults(True)
    assert rows(Json(), path, "text", faults=faults) == [(1, "a"), (5, "b")]
    assert faults.counts == {"broken records": 3}


def test_documents_of_a_file_on_one_line_have_places_of_their_own(write: Write) -> None:
    path = write("a.json", '[{"text": "a"}, {"text": null}, {"text": "b"}]')
    fields, faults, reader = Fields.of({}), Faults(False), Json()
    chunks = [
        fields.chunk(records, "a.json", reader.unit, faults)
        for records in read(reader, File.at(path, "json"), ["text"], faults)
    ]
    assert [(chunk.texts, list(chunk.lines)) for chunk in chunks] == [(["a", "b"], [1, 3])]
    assert faults.counts == {"records with an empty text": 1}


def test_what_follows_the_end_of_a_path_is_let_be(write: Write) -> None:
    path = write("a.json", '{"data": [{"text": "a"}], "n": 1}')
    assert rows(Json("data"), path, "text") == [(1, "a")]
    assert rows(Json(), write("b.json", '[{"text": "a"}] \r\n\t'), "text") == [(1, "a")]


def test_a_path_that_leads_nowhere_is_an_error(write: Write) -> None:
    path = write("a.json", '{"data": {"rows": []}, "n": 1}')
    with pytest.raises(DataError, match=r"a.json:1:30: TXT004 there is no key 'rest' of the path 'rest'"):
        rows(Json("rest"), path, "text")
    with pytest.raises(DataError, match="TXT004 an object with the key 'x' is expected"):
        rows(Json("n.x"), path, "text")


def test_a_record_without_an_end_is_not_read_for_ever(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonfile, "LONGEST", 1000)
    monkeypatch.setattr(blocks, "BLOCK", 100)
    path = write("a.json", '[{"text": "' + "x" * 50_000)
    with pytest.raises(DataError, match=r"a.json:1:\d+: TXT004 no JSON: Unterminated string"):
        rows(Json(), path, "text")


def test_an_empty_file_and_bytes_that_are_no_text_are_counted(write: Write) -> None:
    faults = Faults(True)
    assert not rows(Json(), write("a.json", " \n"), "text", faults=faults)
    assert not rows(Json(), write("b.json", "[]"), "text", faults=faults)
    assert rows(Json(), write("c.json", b'[{"text": "a"},\n{"text": "\xff"}]'), "text", faults=faults) == [
        (1, "a")
    ]
    assert faults.counts == {"empty files": 1, "files that are not UTF-8": 1}


# -- columns ----------------------------------------


def test_dots_go_into_records_and_a_key_with_dots_goes_first(write: Write) -> None:
    records = [{"meta": {"title": "a", "n": [1]}, "m.n": 1}, {"meta": {"title": "b"}, "m": {"n": 2}}]
    content = "".join(json.dumps(record) + "\n" for record in records)
    assert rows(Jsonl(), write("a.jsonl", content), "meta.title", "m.n") == [(1, "a", 1), (2, "b", 2)]
    assert rows(Json(), write("a.json", json.dumps(records)), "m.n") == [(1, 1), (2, 2)]
    with pytest.raises(
        DataError, match=r"a.jsonl:2:1: TXT005 the record has no key 'meta.n'; it has: meta, m"
    ):
        rows(Jsonl(), write("a.jsonl", content), "meta.n")
    faults = Faults(True)
    assert rows(Jsonl(), write("a.jsonl", content), "m.n", "meta.n", faults=faults) == [(1, 1, [1])]


def test_tables_without_a_header_and_with_other_separators(write: Write) -> None:
    path = write("a.csv", 'one;"two; and\nthree"\nfour;five\n')
    reader = Table(";", columns=("text", "other"))
    assert rows(reader, path, "other", "text") == [(1, "two; and\nthree", "one"), (3, "five", "four")]
    with pytest.raises(
        DataError, match=r"a.csv: TXT006 there is no column 'body'; the columns are: text, other"
    ):
        rows(reader, path, "body")
    with pytest.raises(DataError, match=r"a.csv:2:1: TXT004 the row has 1 columns and `columns` names 2"):
        rows(reader, write("a.csv", "one;two\nthree\n"), "text")
    bare = Table("|", quoting=False)
    assert rows(bare, write("a.csv", 'text|n\n"a|1\n'), "n", "text") == [(2, "1", '"a')]


def test_plain_text_has_one_column(write: Write) -> None:
    with pytest.raises(
        DataError, match="TXT006 there is no column 'label': the reader `text` gives the one column"
    ):
        rows(Lines(), write("a.txt", "x"), "text", "label")
