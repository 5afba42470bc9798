from __future__ import annotations

import datetime as dt
import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nlpkernel.plan.toml import read_toml
from nlpkernel.plan.writer import write_toml

texts = st.text(max_size=10) | st.text("\"\\'\n\r\t a", max_size=8)
keys = st.sampled_from(["a", "b", "use", "x-y", "1", "", "a b", "é", 'q"', "\n"]) | texts
zones = st.none() | st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
times = (st.times() | st.datetimes(timezones=zones)).map(lambda moment: moment.replace(fold=0))
moments = st.dates() | times
scalars = st.booleans() | st.integers() | st.floats() | texts | moments
trees = st.dictionaries(
    keys,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def sorted_repr(value: Any) -> str:
    """A text that is the same for equal values, with types and NaN visible, whatever the order of keys."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {sorted_repr(each)}" for key, each in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(sorted_repr, value)) + "]"
    return repr(value)


@given(trees)
def test_what_is_written_reads_back_equal(value: dict[str, Any]) -> None:
    text = write_toml(value)
    node, problems = read_toml(text, "p.toml")
    assert problems == []
    assert sorted_repr(node.plain()) == sorted_repr(value) == sorted_repr(tomllib.loads(text))
    assert text.encode("utf-8").decode("utf-8") == text


@example({"a": [], "": {"": {"a": []}, "a": {"a": [], "": {}}}}, "note", 3)
@given(trees, st.sampled_from(["note", "two\nlines", "a # b", "\x00\u2028"]), st.integers(0, 3))
def test_comments_change_no_value(value: dict[str, Any], comment: str, modulus: int) -> None:
    text = write_toml(value, lambda path: comment if len(path) % 4 >= modulus else None)
    assert sorted_repr(tomllib.loads(text)) == sorted_repr(value)


words = st.sampled_from(["use", "a", "b", "c"])
settings = st.dictionaries(
    words,
    st.recursive(
        st.integers(0, 9) | st.lists(st.integers(0, 9)),
        lambda inner: (
            st.dictionaries(words, inner, max_size=3)
            | st.lists(st.dictionaries(words, inner, max_size=2), min_size=1, max_size=2)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


def paths_of(value: Any, path: str = "") -> list[str]:
    """Paths of all settings that are no tables and no lists of tables."""
    if isinstance(value, dict):
        return [
            each for key, inner in value.items() for each in paths_of(inner, f"{path}.{key}" if path else key)
        ]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [each for index, inner in enumerate(value) for each in paths_of(inner, f"{path}[{index}]")]
    return [path]


@given(settings)
def test_every_setting_has_its_comment_on_its_own_line(value: dict[str, Any]) -> None:
    wanted = paths_of(value)
    text = write_toml(value, lambda path: f"<{path}>" if path in wanted else None)
    assert tomllib.loads(text) == value
    seen = [
        (line.partition(" = ")[0], line.partition("  # ")[2]) for line in text.splitlines() if "  # " in line
    ]
    assert sorted(comment for _, comment in seen) == sorted(f"<{path}>" for path in wanted)
    assert all(comment.rstrip(">").endswith(key) for key, comment in seen)


def test_a_plan_is_written_as_a_person_would() -> None:
    value = {
        "name": "first",
        "train": {"steps": 2000, "clip": 1.0, "evaluate": {"every": 200}, "start": False},
        "data": {
            "use": "text",
            "paths": ["corpus/*.txt"],
            "tokenizer": {"use": "bpe", "vocabulary": 4096},
            "window": 256,
        },
        "model": {"use": "gpt", "transform": [{"use": "lora", "rank": 8}, {"use": "other"}]},
        "optimizer": {
            "use": "adamw",
            "lr": 3e-4,
            "schedule": {"use": "cosine", "warmup": 100, "notes": "long " * 12},
        },
        "monitor": [{"use": "console"}, {}],
        "empty": {},
        "only": {"tables": {"deep": {"text": "x" * 70}}},
    }
    assert (
        write_toml(value)
        == f"""\
name = "first"

[train]
steps = 2000
clip = 1.0
evaluate = {{ every = 200 }}
start = false

[data]
use = "text"
paths = ["corpus/*.txt"]
tokenizer = {{ use = "bpe", vocabulary = 4096 }}
window = 256

[model]
use = "gpt"

[[model.transform]]
use = "lora"
rank = 8

[[model.transform]]
use = "other"

[optimizer]
use = "adamw"
lr = 0.0003

[optimizer.schedule]
use = "cosine"
warmup = 100
notes = "{"long " * 12}"

[[monitor]]
use = "console"

[[monitor]]

[empty]

[only.tables.deep]
text = "{"x" * 70}"
"""
    )


def test_comments_stand_under_each_other_and_every_commented_setting_has_a_line() -> None:
    value = {
        "model": {"use": "gpt", "preset": "nano", "inner": {"a": 1, "b": 2}, "sizes": [1, 2]},
        "monitor": [{"use": "console"}],
        "path": "x" * 60,
    }
    notes = {
        "path": "plan.toml:1:8",
        "model": "the model",
        "model.use": "plan.toml:2:3",
        "model.preset": "--set",
        "model.inner.b": "default",
        "model.sizes": "two",
        "monitor[0]": "first",
        "monitor[0].use": "plan.toml:9:1",
    }
    assert (
        write_toml(value, notes.get)
        == f"""\
path = "{"x" * 60}"  # plan.toml:1:8

[model]  # the model
use = "gpt"      # plan.toml:2:3
preset = "nano"  # --set
sizes = [1, 2]   # two

[model.inner]
a = 1
b = 2  # default

[[monitor]]  # first
use = "console"  # plan.toml:9:1
"""
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", '"plain"'),
        ("C:\\data\\new", "'C:\\data\\new'"),
        ('say "\\d"', "'say \"\\d\"'"),
        ("it's \\", '"it\'s \\\\"'),
        ("a\tb", '"a\\tb"'),
        ("a\u2028b\ufeff\x7f\x85", '"a\\u2028b\\uFEFF\\u007F\\u0085"'),
        ("two\nlines\n", '"""\ntwo\nlines\n"""'),
        ('"""\n\\"', '"""\n""\\"\n\\\\""""'),
        ("naïve 😀", '"naïve 😀"'),
    ],
)
def test_a_text_is_quoted_as_it_is_best_read(text: str, written: str) -> None:
    assert write_toml({"a": text}) == f"a = {written}\n"
    assert tomllib.loads(f"a = {written}\n") == {"a": text}


def test_long_arrays_have_an_entry_a_line() -> None:
    items = [f"corpus/part-{number:05d}.txt" for number in range(5)]
    rows = "".join(f'    "{item}",\n' for item in items)
    assert write_toml({"a": items}) == f"a = [\n{rows}]\n"


def test_keys_are_quoted_only_where_they_must_be() -> None:
    value = {"a-b_1": 1, "a b": 2, "": 3, "é": {"x": {"y.z": [{}]}}}
    assert write_toml(value) == 'a-b_1 = 1\n"a b" = 2\n"" = 3\n\n[["é".x."y.z"]]\n'


def test_nothing_is_an_empty_document() -> None:
    assert write_toml({}) == ""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": None}, "a"),
        ({"model": {"preset": None}}, "model.preset"),
        ({"monitor": [{"use": "x"}, {"y": {"z": None}}]}, "monitor[1].y.z"),
        ({"a": [1, [None]]}, "a[1][0]"),
        ({"a": {"b": object()}}, "a.b"),
        ({"a": {1: 2}}, "a"),
        ({"a": b"bytes"}, "a"),
        ({"a": "\ud800"}, "a"),
        ({"a": dt.time(tzinfo=dt.UTC)}, "a"),
        ({"a": dt.datetime(1900, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1)))}, "a"),
    ],
)
def test_what_toml_cannot_express_is_a_type_error_that_names_the_path(
    value: dict[str, Any], path: str
) -> None:
    with pytest.raises(TypeError) as caught:
        write_toml(value)
    assert str(caught.value).startswith(f"{path}: ")


def test_tuples_are_arrays() -> None:
    assert write_toml({"a": (0.9, 0.95), "b": ({"c": 1},)}) == "a = [0.9, 0.95]\n\n[[b]]\nc = 1\n"
