"""Values of a plan checked against the types of their settings: nothing is converted silently."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nlpkernel.errors import PlanError
from nlpkernel.plan import Plan

if TYPE_CHECKING:
    from conftest import Shop


# -- P1 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plan.toml", '[optimizer]\nuse = "./own.py:Own"\nlr = 1e-4\n'),
        ("plan.json", '{"optimizer": {"use": "./own.py:Own", "lr": 1e-4}}'),
        ("plan.yaml", "optimizer:\n  use: ./own.py:Own\n  lr: 1e-4\n"),
    ],
)
def test_case_p1_a_rate_is_the_same_number_in_every_format(kinds: Shop, name: str, text: str) -> None:
    kinds.write(name, text)
    kinds.plan(f'extends = "{name}"\n', "whole.toml", without=("optimizer",))
    plan = Plan.load(kinds.folder / "whole.toml")
    assert plan.compose().slot("optimizer").component.lr == 0.0001
    quoted = text.replace("1e-4", '"1e-4"')
    kinds.write(name, quoted)
    with pytest.raises(PlanError) as caught:
        Plan.load(kinds.folder / "whole.toml")
    (problem,) = caught.value.problems
    assert (problem.code, problem.hint) == ("NK103", "write 1e-4 without quotes")
    assert problem.place is not None
    line = problem.place.line - 1
    assert quoted.splitlines()[line][problem.place.column - 1 :].startswith('"1e-4"')


def test_case_p1_a_whole_number_becomes_a_number_and_true_does_not(kinds: Shop) -> None:
    made: Any = kinds.made("lr = 1")
    assert (made.lr, type(made.lr)) == (1.0, float)
    (line,) = kinds.lines("lr = true")
    assert line.startswith("plan.toml:3:6: NK103 optimizer.lr must be a number, not true [Own of own.py ")


# -- kinds of values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("", "pair", (1.0, 2.0)),
        ('count = "10k"', "count", 10_000),
        ('size = "200MB"', "size", 200_000_000),
        ('wait = "1h30m"', "wait", 5400.0),
        ('seconds = "5m"', "seconds", 300),
        ("wait = 3", "wait", 3.0),
        ("level = 2", "level", 2),
        ("pair = [3, 0.5]", "pair", (3.0, 0.5)),
        ("many = [1, 2]", "many", (1, 2)),
        ("some = [1, 2]", "some", [1, 2]),
        ("table = { a = 1, b = 2.5 }", "table", {"a": 1.0, "b": 2.5}),
        ("mixed = 3", "mixed", 3),
        ('mixed = "auto"', "mixed", "auto"),
        ("either = 3", "either", 3),
        ("either = [3]", "either", [3]),
        ("anything = { a = [1, true] }", "anything", {"a": [1, True]}),
        ('text = "${WORD}"', "text", "12"),
        ('text = "a${WORD}b"', "text", "a12b"),
        ('text = "$${WORD}"', "text", "${WORD}"),
        ('level = "${ONE}"', "level", 1),
        ('count = "${WORD}"', "count", 12),
        ('count = "${NOBODY:-7k}"', "count", 7000),
    ],
)
def test_a_value_of_its_kind_arrives(
    kinds: Shop, monkeypatch: pytest.MonkeyPatch, table: str, name: str, value: object
) -> None:
    monkeypatch.setenv("WORD", "12")
    monkeypatch.setenv("ONE", "1")
    found = getattr(kinds.made(f"lr = 1\n{table}"), name)
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, (tuple, list)):
        assert [type(each) for each in found] == [type(each) for each in value]


@pytest.mark.parametrize(
    ("table", "code", "said"),
    [
        ('lr = "fast"', "NK103", 'must be a number, not the text "fast"'),
        ("lr = 0", "NK104", "is 0, and must be greater than 0"),
        ("lr = 11", "NK104", "is 11, and must be at most 10"),
        ("lr = nan", "NK104", "is nan, and must be a finite number"),
        ("lr = inf", "NK104", "is inf, and must be a finite number"),
        ("lr = 1" + 400 * "0", "NK104", "and must be a finite number"),
        ("count = 2.9", "NK103", 'must be a whole number or text like "300M", not the number 2.9'),
        ("count = 2.0", "NK103", "; write 2"),
        ('count = "12"', "NK103", "'12' has no unit: a count is written like"),
        ('count = "3x"', "NK103", "'3x' has the unknown unit x"),
        ("count = true", "NK103", "not true"),
        ("count = -1" + 400 * "0", "NK104", "must be at least 1"),
        ('text = "a"', "NK104", "must have at least 2 characters"),
        ("text = 3", "NK103", 'must be text, not the number 3; write "3" with quotes'),
        ('flag = "True"', "NK103", 'must be true or false, not the text "True"; write true without quotes'),
        ("flag = 1", "NK103", "must be true or false, not the number 1"),
        ('way = "upp"', "NK105", 'is "upp", which is none of "up", "down"; did you mean "up"?'),
        ("way = 1", "NK103", 'must be one of "up", "down", not the number 1'),
        ("level = true", "NK103", "must be one of 1, 2, not true"),
        ("level = 1.0", "NK103", "must be one of 1, 2, not the number 1.0"),
        ("level = 3", "NK105", "is 3, which is none of 1, 2"),
        ("pair = [1]", "NK103", "must have 2 values, not 1"),
        ("pair = 1", "NK103", "must be a list, not the number 1; write [1]"),
        ("pair = [1, -1]", "NK104", "optimizer.pair[1] is -1, and must be at least 0"),
        ("some = [1, 'a']", "NK103", 'optimizer.some[1] must be a whole number, not the text "a"'),
        ("some = [[1]]", "NK103", "optimizer.some[0] must be a whole number, not a list"),
        ("names = []", "NK104", "must have at least 1 values, not 0"),
        ('table = { a = "b" }', "NK103", 'optimizer.table.a must be a number, not the text "b"'),
        ("table = [1]", "NK103", "must be a table, not a list"),
        ("where = 3", "NK103", "must be a path, not the number 3"),
        ('where = ""', "NK103", 'must be a path, not the text ""'),
        ('mixed = "aut"', "NK105", 'which is none of "auto"; did you mean "auto"?'),
        ("mixed = 2.5", "NK103", 'must be one of "auto" or a whole number, not the number 2.5'),
        (
            'either = "3"',
            "NK103",
            'must be a whole number or a list, not the text "3"; write 3 without quotes',
        ),
        ("either = 0", "NK104", "is 0, and must be at least 1"),
        ("either = [0]", "NK104", "optimizer.either[0] is 0, and must be at least 1"),
        ("text = 2020-01-02", "NK103", "must be text, not 2020-01-02"),
    ],
)
def test_a_value_of_another_kind_is_refused_in_so_many_words(
    kinds: Shop, table: str, code: str, said: str
) -> None:
    lr = "" if table.startswith("lr") else "lr = 1\n"
    (problem,) = kinds.refused(lr + table)
    assert problem.code == code
    assert said in str(problem)
    assert problem.owner is not None
    assert problem.owner.startswith("Own of ")
    assert problem.place is not None
    assert (Path(problem.place.file).name, problem.place.line) == ("plan.toml", 3 + lr.count("\n"))


def test_six_mistakes_in_one_component_are_six_lines(kinds: Shop) -> None:
    lines = kinds.lines('lr = 0\ncount = 2.9\nflag = "true"\nway = "upp"\npair = [1]\nlrr = 3\n')
    places = [line.split(": ")[0] for line in lines]
    assert places == [
        f"plan.toml:{line}:{column}" for line, column in ((3, 6), (4, 9), (5, 8), (6, 7), (7, 8), (8, 1))
    ]
    assert [line.split(" ")[1] for line in lines] == ["NK104", "NK103", "NK103", "NK105", "NK103", "NK101"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.none(), st.lists(st.integers()))
)
def test_a_number_takes_exactly_finite_numbers_in_its_range(kinds: Shop, value: Any) -> None:
    table = {"use": "./own.py:Own", "lr": value}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    good = number and math.isfinite(value) and 0 < value <= 10
    try:
        plan = Plan.of(kinds.values(optimizer=table), base=kinds.folder)
    except PlanError as error:
        assert not good
        (problem,) = error.problems
        assert problem.code == ("NK104" if number else "NK103")
    else:
        assert good
        assert plan.compose().slot("optimizer").component.lr == value


# -- null -----------------------------------------------------------------------------------------------------------


def test_null_means_left_out_and_is_refused_where_that_is_something_else(shop: Shop) -> None:
    shop.own(
        "a: int | None = setting(default=None)\nb: int | None = setting(default=5)\nc: int | None = setting()\n"
    )

    def of(**values: object) -> Plan:
        return Plan.of(shop.values(optimizer={"use": "./own.py:Own", **values}), base=shop.folder)

    assert of(a=None, c=1).compose().slot("optimizer").component.a is None
    with pytest.raises(PlanError) as caught:
        of(b=None, c=None)
    texts = [f"{problem.message}; {problem.hint}" for problem in caught.value.problems]
    assert texts == [
        "optimizer.b cannot be null; null means that a setting is left out, and it is 5 then",
        "optimizer.c cannot be null; null means that a setting is left out, and it has no default",
    ]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"many": [1, None]}, "optimizer.many[1]"),
        ({"table": {"a": None}}, "optimizer.table.a"),
        ({"anything": {"a": [None]}}, "optimizer.anything.a[0]"),
    ],
)
def test_null_is_no_entry_of_a_list_or_a_table(kinds: Shop, value: dict[str, Any], path: str) -> None:
    with pytest.raises(PlanError, match=rf"NK103 {path.replace('[', r'.').replace(']', '.')} cannot be null"):
        Plan.of(kinds.values(optimizer={"use": "./own.py:Own", "lr": 1, **value}), base=kinds.folder)


# -- paths ----------------------------------------------------------------------------------------------------------


def test_a_path_starts_from_the_file_that_wrote_it(kinds: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(kinds.folder / "home"))
    monkeypatch.setenv("SUB", "sub")
    kinds.write("base/base.toml", '[optimizer]\nuse = "../own.py:Own"\nlr = 1\nwhere = "a.txt"\n')
    kinds.plan('extends = "base/base.toml"\n', without=("optimizer",))

    def where(text: str, *overrides: str) -> Any:
        plan = Plan.load(kinds.plan(text, without=("optimizer",)), overrides)
        return plan.compose().slot("optimizer").component.where

    extends = 'extends = "base/base.toml"\n'
    assert where(extends) == kinds.folder / "base/a.txt"
    assert where(extends + 'optimizer = { where = "b.txt" }\n') == kinds.folder / "b.txt"
    assert where(extends + 'optimizer = { where = "/abs/b.txt" }\n') == Path("/abs/b.txt")
    assert where(extends + 'optimizer = { where = "~/b.txt" }\n') == kinds.folder / "home/b.txt"
    assert where(extends + 'optimizer = { where = "~no-such-user/b" }\n') == kinds.folder / "~no-such-user/b"
    assert where(extends, "optimizer.where=c.txt") == Path.cwd() / "c.txt"


def test_the_filled_plan_finds_the_same_files_from_another_folder(
    kinds: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUB", "sub")
    plan = kinds.load('lr = 1\nwhere = "${SUB}/a.txt"')
    again = Plan.load(kinds.write("elsewhere/plan.toml", plan.text()))
    assert "${SUB}" in plan.text()
    first, second = (each.compose().slot("optimizer") for each in (plan, again))
    assert first.component.where == second.component.where == kinds.folder / "sub/a.txt"
    assert first.found.target == second.found.target == f"{kinds.folder}/own.py:Own"


# -- secrets --------------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("TOKEN", "hunter2")
    monkeypatch.setenv("DIGITS", "123456")
    shop.own(
        "token: str | None = setting(default=None, secret=True)\n"
        "tokens: list[str] = setting(default=[], secret=True)\nnumber: int = setting(default=0, lt=10)\n"
    )
    return shop


def test_a_secret_comes_from_the_environment_and_is_written_nowhere(secret: Shop) -> None:
    plan = secret.load('token = "${TOKEN}"\ntokens = ["${DIGITS}", "Bearer ${TOKEN}"]')
    made = plan.compose().slot("optimizer").component
    assert (made.token, made.tokens) == ("hunter2", ["123456", "Bearer hunter2"])
    for text in (plan.text(), plan.text(origins=True)):
        assert "${TOKEN}" in text
        assert "hunter2" not in text
        assert "123456" not in text


def test_a_list_of_secrets_may_be_one_reference(secret: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOTH", '["hunter2", "hunter3"]')
    plan = secret.load('tokens = "${BOTH}"')
    assert plan.compose().slot("optimizer").component.tokens == ["hunter2", "hunter3"]
    assert "hunter" not in plan.text()


@pytest.mark.parametrize(
    "table",
    ['token = "hunter2"', 'token = "${NOBODY:-hunter2}"', 'tokens = ["${TOKEN}", "hunter2"]', "token = 2222"],
)
def test_a_secret_in_the_plan_is_refused_and_not_repeated(secret: Shop, table: str) -> None:
    (line,) = secret.lines(table)
    assert "NK110" in line
    assert "hunter2" not in line
    assert "2222" not in line


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('number = "${TOKEN}"', "must be a whole number, not the text that ${TOKEN} stands for"),
        ('number = "${DIGITS}"', "is the number that ${DIGITS} stands for, and must be less than 10"),
        ('tokens = "${TOKEN}"', "must be a list, not the text that ${TOKEN} stands for"),
    ],
)
def test_what_comes_from_the_environment_is_in_no_message(secret: Shop, table: str, said: str) -> None:
    (line,) = secret.lines(table)
    assert said in line
    assert "hunter2" not in line
    assert "123456" not in line


def test_a_variable_that_is_not_set_is_told_once(kinds: Shop) -> None:
    (line,) = kinds.lines('lr = "${NOBODY_SETS_THIS}"')
    assert line.startswith("plan.toml:3:6: NK008 the environment variable NOBODY_SETS_THIS is not set")


# -- the filled plan ------------------------------------------------------------------------------------------------

# What each setting of ALL_KINDS takes.
_NUMBERS = st.floats(0.001, 10) | st.integers(1, 10)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=2, max_size=6)
GOOD = st.fixed_dictionaries(
    {"lr": _NUMBERS},
    optional={
        "count": st.integers(1, 2**70) | st.sampled_from(["10k", "1.5M"]),
        "size": st.sampled_from(["1kB", "2GiB"]) | st.integers(),
        "wait": st.floats(0, 1e6) | st.sampled_from(["90s", "1h30m"]),
        "text": _TEXT.map(lambda text: text.replace("${", "$${")),
        "flag": st.booleans(),
        "way": st.sampled_from(["up", "down"]),
        "level": st.sampled_from([1, 2]),
        "pair": st.lists(_NUMBERS, min_size=2, max_size=2),
        "many": st.lists(st.integers(), max_size=3),
        "some": st.lists(st.integers(max_value=9), max_size=3),
        "names": st.lists(_TEXT.filter(lambda text: "${" not in text), min_size=1, max_size=3),
        "table": st.dictionaries(_TEXT, _NUMBERS, max_size=3),
        "where": st.sampled_from(["a.txt", "../b", "/c"]),
        "mixed": st.just("auto") | st.integers(),
        "either": st.none() | st.integers(1, 9) | st.lists(st.integers(1, 9), max_size=2),
        "anything": st.recursive(
            st.booleans() | st.integers() | st.floats(allow_nan=False),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
            max_leaves=4,
        ),
    },
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=GOOD)
def test_the_text_of_a_filled_plan_is_read_back_as_the_same_plan(kinds: Shop, table: dict[str, Any]) -> None:
    plan = Plan.of(kinds.values(optimizer={"use": "./own.py:Own", **table}), base=kinds.folder)
    again = Plan.load(kinds.write("elsewhere/again.toml", plan.text()))
    assert again.text() == plan.text()
    first, second = (vars(each.compose().slot("optimizer").component) for each in (plan, again))
    assert first == second
    assert {key: type(value) for key, value in first.items()} == {
        key: type(value) for key, value in second.items()
    }
    assert plan.train == again.train


def test_each_run_of_a_plan_gets_components_of_its_own(kinds: Shop) -> None:
    plan = kinds.load("lr = 1\nsome = [1]")
    first, second = (plan.compose().slot("optimizer").component for _ in range(2))
    assert first is not second
    assert first.some is not second.some


def test_a_json_plan_is_checked_with_places_too(kinds: Shop) -> None:
    values = kinds.values(optimizer={"use": "./own.py:Own", "lr": "1"})
    path = kinds.write("plan.json", json.dumps(values, indent=1))
    with pytest.raises(PlanError, match=r"plan\.json:\d+:\d+: NK103 optimizer.lr must be a number"):
        Plan.load(path)
