from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nlpkernel.errors import Place
from nlpkernel.plan.json import read_json

texts = st.text(max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
layouts = st.tuples(st.sampled_from([None, 0, 1, "\t"]), st.booleans())


def refuse(name: str) -> None:
    raise ValueError(name)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def expected(text: str) -> str | None:
    """What the standard library makes of strict JSON; None where it refuses."""
    try:
        value = repr(json.loads(text, parse_constant=refuse, object_pairs_hook=unique))
    except ValueError:
        return None
    # The two points in which this reader is stricter.
    return None if "inf" in value.replace("infinity", "") or "\\ud" in value else value


def problems_of(text: str) -> list[str]:
    return [str(problem) for problem in read_json(text, "p.json")[1]]


@given(trees, layouts)
def test_what_json_writes_is_read_the_same(value: Any, layout: tuple[Any, bool]) -> None:
    text = json.dumps(value, indent=layout[0], ensure_ascii=layout[1])
    node, problems = read_json(text, "p.json")
    assert problems == []
    assert repr(node.plain()) == repr(value)


@given(trees, layouts, st.data())
@example({"a": 1}, (None, True), None)
def test_a_damaged_text_is_refused_exactly_where_json_refuses_it(
    value: Any, layout: tuple[Any, bool], data: st.DataObject | None
) -> None:
    text = json.dumps(value, indent=layout[0], ensure_ascii=layout[1])
    for _ in range(data.draw(st.integers(1, 3)) if data else 0):
        assert data is not None
        at = data.draw(st.integers(0, len(text)))
        put = data.draw(
            st.sampled_from([*'"{}[]:,\\ \n0.eE-+u', "\\u00e9", "\\ud83d\\ude00", "NaN", "\x01", "é", ""])
        )
        text = text[:at] + put + text[at + data.draw(st.integers(0, 2)) :]
    want = expected(text)
    if want is None and "\\ud" not in text and "inf" not in text:
        assert read_json(text, "p.json")[1]
    elif want is not None:
        node, problems = read_json(text, "p.json")
        assert problems == []
        assert repr(node.plain()) == want


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "1e999", '"\\ud800"', '"\\ude00\\ud800"', "[" * 200 + "]" * 200, "9" * 5000]
)
def test_what_python_lets_through_and_json_does_not_mean_is_refused(text: str) -> None:
    assert len(read_json(text, "p.json")[1]) == 1


def test_keys_and_values_have_places_in_code_points() -> None:
    root, problems = read_json('{\r\n  "é😀": {"b": [1,\n\t"x"]}, "c": null}', "p.json")
    assert problems == []
    found = {path: (str(node.place), str(node.key_place)) for path, node in root.walk()}
    assert found == {
        "": ("p.json:1:1", "None"),
        "é😀": ("p.json:2:9", "p.json:2:3"),
        "é😀.b": ("p.json:2:15", "p.json:2:10"),
        "é😀.b[0]": ("p.json:2:16", "None"),
        "é😀.b[1]": ("p.json:3:2", "None"),
        "c": ("p.json:3:14", "p.json:3:9"),
    }


def test_every_key_that_is_written_twice_is_named_and_the_first_value_stays() -> None:
    root, problems = read_json('{"a": 1,\n"a": {"b": 1, "b": 2},\n"c": 3, "c": 4}', "p.json")
    assert [str(problem) for problem in problems] == [
        "p.json:2:1: NK002 the key 'a' is written twice; the first is at p.json:1:2; remove one of them",
        "p.json:2:15: NK002 the key 'b' is written twice; the first is at p.json:2:7; remove one of them",
        "p.json:3:9: NK002 the key 'c' is written twice; the first is at p.json:3:1; remove one of them",
    ]
    assert root.plain() == {"a": 1, "c": 3}


def test_what_stands_before_a_syntax_error_is_kept() -> None:
    root, problems = read_json('{"a": {"b": 1, "c": [2, ?', "p.json")
    assert [problem.place for problem in problems] == [Place("p.json", 1, 25)]
    assert root.plain() == {"a": {"b": 1, "c": [2]}}


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["1:1: NK001 expected a value, found the end of the file"]),
        (
            '{"a": 1,}',
            [
                "1:8: NK001 expected another entry after ',', found '}'; the last entry of an object has no comma"
                " behind it"
            ],
        ),
        (
            "[1,\n]",
            [
                "1:3: NK001 expected another entry after ',', found ']'; the last entry of an array has no comma"
                " behind it"
            ],
        ),
        (
            '{"a" = 1}',
            ["1:6: NK001 expected ':' after the key 'a', found '='; JSON writes ':' between key and value"],
        ),
        ("{a: 1}", ["1:2: NK001 expected a key, found 'a'; a key stands in double quotes"]),
        ('{"a": 1 "b": 2}', ["1:9: NK001 expected ',' or '}', found '\"'"]),
        ('{"a": 1 // note\n}', ["1:9: NK001 expected ',' or '}', found '/'; JSON has no comments"]),
        ('{"a": True}', ["1:7: NK001 expected a value, found 'True'; write true"]),
        ('{"a": None}', ["1:7: NK001 expected a value, found 'None'; write null"]),
        ('{"a": adamw}', ["1:7: NK001 expected a value, found 'adamw'; text stands in quotes: \"adamw\""]),
        ("{\"a\": 'x'}", ["1:7: NK001 expected a value, found '''; text stands in double quotes"]),
        ('{"a": NaN}', ["1:7: NK001 expected a value, found 'NaN'; JSON has no such number"]),
        ('{"a": 01}', ["1:7: NK001 expected a value, found '01'"]),
        (
            '{"a": "C:\\data"}',
            ["1:10: NK001 '\\d' is no escape; a backslash in a text is written twice: \\\\"],
        ),
        (
            '{"a": "x\n"}',
            ['1:7: NK001 the text that begins here has no closing quote; expected " on the same line'],
        ),
        ('{"a": "\t"}', ["1:8: NK001 the character U+0009 may not stand in a text; write it as \\u0009"]),
        ("{} x", ["1:4: NK001 expected the end of the file, found 'x'"]),
    ],
)
def test_a_message_says_what_was_expected_and_what_to_write(text: str, messages: list[str]) -> None:
    assert problems_of(text) == [f"p.json:{message}" for message in messages]
