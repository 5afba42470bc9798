from __future__ import annotations

import builtins
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.plan.yaml import read_yaml

pytest.importorskip("ruamel.yaml")

# What a YAML stream may hold without an escape.
printable = st.characters(
    exclude_categories=("Cs", "Cc", "Cn", "Co"), exclude_characters="\ufeff\u2028\u2029"
)
texts = st.text(printable | st.sampled_from("\n\t"), max_size=8) | st.sampled_from(
    [
        "no",
        "off",
        "yes",
        "~",
        "null",
        "1_000",
        "12:30",
        "0x1",
        "1e3",
        "<<",
        "- a",
        "a: b",
        "# c",
        "",
        "2024-01-01",
        "=",
        "!x",
        "&a",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
trees = st.dictionaries(
    texts,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


def problems_of(text: str) -> list[str]:
    return [str(problem) for problem in read_yaml(text, "p.yaml")[1]]


@given(trees)
def test_json_is_read_the_same(value: Any) -> None:
    node, problems = read_yaml(json.dumps(value, ensure_ascii=False), "p.yaml")
    assert problems == []
    assert repr(node.plain()) == repr(value)


@given(trees)
def test_what_a_yaml_1_2_writer_writes_is_read_the_same(value: Any) -> None:
    from ruamel.yaml import YAML

    stream = io.StringIO()
    writer = YAML(pure=True)
    writer.allow_unicode = True
    writer.dump(value, stream)
    node, problems = read_yaml(stream.getvalue(), "p.yaml")
    assert problems == []
    assert repr(node.plain()) == repr(value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("off", "off"),
        ("Yes", "Yes"),
        ("y", "y"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-05-01", "2024-05-01"),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("+12", 12),
        ("-0x1", "-0x1"),
        ("1e-4", 1e-4),
        ("1.", 1.0),
        (".5", 0.5),
        ("+.5e3", 500.0),
        ("1e3", 1000.0),
        ("1e", "1e"),
        (".", "."),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        ("+.nan", "+.nan"),
        ("~", None),
        ("", None),
        ("null", None),
        ("NULL", None),
        ("nuLL", "nuLL"),
        ("None", "None"),
        ("true", True),
        ("TRUE", True),
        ("False", False),
        ("tRue", "tRue"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("''", ""),
        ("|\n  1\n", "1\n"),
        ("=", "="),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("!!float 1", 1.0),
        ("!!null ''", None),
        ("!!bool 'true'", True),
        ("! 1", "1"),
        ("!!map {}", {}),
        ("!!seq []", []),
    ],
)
def test_a_scalar_means_what_the_core_schema_of_yaml_1_2_says(written: str, value: Any) -> None:
    node, problems = read_yaml(f"a: {written}", "p.yaml")
    assert problems == []
    assert repr(node.plain()) == repr({"a": value})


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(read_yaml("a: .NaN", "p.yaml")[0].value["a"].value)


def test_keys_and_values_have_places_in_code_points() -> None:
    root, problems = read_yaml("# c\r\né😀:\r\n  b: [1, 'x']\r\n  c:\r\n  - d: 2\r\n", "p.yaml")
    assert problems == []
    found = {path: (str(node.place), str(node.key_place)) for path, node in root.walk() if path}
    assert found == {
        "é😀": ("p.yaml:3:3", "p.yaml:2:1"),
        "é😀.b": ("p.yaml:3:6", "p.yaml:3:3"),
        "é😀.b[0]": ("p.yaml:3:7", "None"),
        "é😀.b[1]": ("p.yaml:3:10", "None"),
        "é😀.c": ("p.yaml:5:3", "p.yaml:4:3"),
        "é😀.c[0]": ("p.yaml:5:5", "None"),
        "é😀.c[0].d": ("p.yaml:5:8", "p.yaml:5:5"),
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "--- ~\n..."])
def test_an_empty_document_is_null(text: str) -> None:
    node, problems = read_yaml(text, "p.yaml")
    assert (node.value, problems) == (None, [])


def test_every_key_that_is_written_twice_is_named_and_the_first_value_stays() -> None:
    root, problems = read_yaml("a: 1\nb: {c: 1, 'c': 2}\na: 3\n", "p.yaml")
    assert [str(problem) for problem in problems] == [
        "p.yaml:2:11: NK002 the key 'c' is written twice; the first is at p.yaml:2:5; remove one of them",
        "p.yaml:3:1: NK002 the key 'a' is written twice; the first is at p.yaml:1:1; remove one of them",
    ]
    assert root.plain() == {"a": 1, "b": {"c": 1}}


def test_an_alias_is_a_copy_at_its_own_place() -> None:
    root, problems = read_yaml("a: &x {b: [1]}\nc: *x\n", "p.yaml")
    assert problems == []
    assert root.plain() == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert str(root.value["c"].place) == "p.yaml:2:4"
    assert root.value["c"].value["b"] is not root.value["a"].value["b"]


def test_aliases_that_grow_without_bound_are_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    problems = problems_of("\n".join(rows))
    assert len(problems) == 1
    assert "NK010 the aliases of this file stand for more than 10000 values" in problems[0]


def test_aliases_do_not_get_around_the_bound_on_depth() -> None:
    rows = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 150)]
    assert [problem.code for problem in read_yaml("\n".join(rows), "p.yaml")[1]] == ["NK014"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [*x]", "1:8: NK010 no anchor &x is complete before this alias"),
        ("a: *y", "1:4: NK010 no anchor &y is complete before this alias"),
        ("a: !new x", "1:4: NK010 the tag !new means nothing in a plan; remove it"),
        ("a: !!binary x", "1:4: NK010 the tag !!binary means nothing in a plan; remove it"),
        ("a: !!set {x}", "1:4: NK010 the tag !!set means nothing in a plan; remove it"),
        (
            "a: !!python/object/apply:os.system ['true']",
            "1:4: NK010 the tag !!python/object/apply:os.system means nothing in a plan; remove it",
        ),
        ("a: !!int x", "1:4: NK010 'x' is no int; remove the tag"),
        ("1: x", "1:1: NK013 a key must be text, not 1; put it in quotes"),
        ("true: x", "1:1: NK013 a key must be text, not True; put it in quotes"),
        ("? [a]\n: x", "1:3: NK013 a key must be text, not a list; put it in quotes"),
        (
            "b: &b {c: 1}\na:\n  <<: *b",
            "3:3: NK010 YAML 1.2 has no merge keys (<<); share settings with extends",
        ),
        ("a: 1\n---\nb: 1", "2:1: NK010 a second document begins here; a plan is one document"),
        ("%YAML 1.1\n---\na: no", "1:1: NK010 the file says that it is YAML 1.1; plans are read as YAML 1.2"),
        (
            "a:\n\t- b",
            "2:1: NK001 while scanning for the next token, found character '\\t' that cannot start any token;"
            " YAML indents with blanks, not with tabs",
        ),
        ("a: [1", "1:6: NK001 while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"),
        (
            "a: b: c",
            "1:5: NK001 mapping values are not allowed here; a text with ': ' in it stands in quotes",
        ),
        (
            "a: @b",
            "1:4: NK001 while scanning for the next token, found character '@' that cannot start any token; a text"
            " that begins with this character stands in quotes",
        ),
        ("a: x\x07", "1:5: NK001 special characters are not allowed"),
        ('a: "\\ud800"', "1:4: NK001 the text holds half of a surrogate pair, which is no character"),
        ("a: " + "9" * 5000, "1:4: NK001 a number of 5000 digits is too long"),
        (
            "a: " + "[" * 200 + "]" * 200,
            "1:103: NK014 tables and lists stand more than 100 levels deep in each other",
        ),
    ],
)
def test_what_a_plan_does_not_take_is_refused_with_its_place(text: str, message: str) -> None:
    assert problems_of(text) == [f"p.yaml:{message}"]


def test_refused_tags_and_keys_do_not_stop_the_reader() -> None:
    root, problems = read_yaml("1: x\na: !t y\nb: 2\nb: 3\nc: [4\n", "p.yaml")
    assert [problem.code for problem in problems] == ["NK013", "NK010", "NK002", "NK001"]
    assert root.plain() == {"a": "y", "b": 2, "c": [4]}


def test_without_its_package_the_problem_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("ruamel"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert problems_of("a: 1") == [
        "p.yaml: NK009 YAML support is not installed (No module named 'ruamel.yaml'); pip install 'nlpkernel[yaml]'"
    ]
