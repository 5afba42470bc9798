"""Every key of a plan checked against its component: nothing is ignored, and nothing is converted silently."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nlpkernel.errors import PlanError, PluginError
from nlpkernel.plan import Plan

if TYPE_CHECKING:
    from conftest import Shop

ALL_KINDS = """
lr: float = setting(gt=0, le=10, help="peak learning rate")
count: int = setting(default=3, ge=1, unit="count")
size: int = setting(default=0, unit="bytes")
wait: float = setting(default=0.0, unit="seconds")
seconds: int = setting(default=1, unit="seconds")
text: str = setting(default="abc", min_length=2)
flag: bool = setting(default=False)
way: Literal["up", "down"] = setting(default="up")
level: Literal[1, 2] = setting(default=1)
pair: tuple[float, float] = setting(default=(1, 2), ge=0)
many: tuple[int, ...] = setting(default=())
some: list[int] = setting(default=[], le=9)
names: list[str] = setting(default=["x"], min_length=1)
table: dict[str, float] = setting(factory=dict)
where: Path | None = setting(default=None)
mixed: Literal["auto"] | int = setting(default="auto")
either: int | list[int] | None = setting(default=None, ge=1)
anything: Any = setting(default=None)
"""


@pytest.fixture
def kinds(shop: Shop) -> Shop:
    shop.own(ALL_KINDS)
    return shop


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


# -- keys -----------------------------------------------------------------------------------------------------------


def test_an_unknown_key_suggests_the_nearest_or_lists_all(shop: Shop) -> None:
    shop.own("rate: float = setting(default=1.0)\nlimit: int = setting(default=1)\n")
    near, far = shop.lines("rtae = 2.0\nzzz = 1\n")
    assert near.startswith(
        "plan.toml:3:1: NK101 optimizer: there is no setting 'rtae'; did you mean 'rate'? [Own of "
    )
    assert "plan.toml:4:1: NK101 optimizer: there is no setting 'zzz'; there are: limit, rate [Own of " in far


def test_what_is_missing_stands_at_the_table_with_its_help(kinds: Shop) -> None:
    (line,) = kinds.lines("")
    assert line.startswith(
        "plan.toml:1:2: NK102 optimizer.lr is missing; lr: peak learning rate [Own of own.py "
    )


def test_a_misspelt_section_is_told_apart_from_extends(shop: Shop) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.load(shop.plan('extend = "base.toml"\nzzz = 1\n[optimzer]\nuse = "x"\n'))
    hints = [problem.hint for problem in caught.value.problems]
    assert hints[0] == "did you mean 'extends'?"
    assert hints[1] is not None
    assert hints[1].startswith("there are: checkpoint, communicator, data, extends")
    assert hints[2] == "did you mean 'optimizer'?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("optimizer = 3", "NK103 optimizer must be a table with `use`, not the number 3"),
        ("[optimizer]\nlr = 1", "NK112 optimizer has no `use`"),
        ("[optimizer]\nuse = 3", "NK112 optimizer needs text for `use`, not the number 3"),
        ("[optimizer]\nuse = ''", "NK106 no installed distribution offers '' for 'optimizer'"),
        ("train = 3", "NK103 train must be a table, not the number 3"),
        ("monitor = 'x'", "NK103 monitor is a list of tables; write [[monitor]] in TOML"),
        ("monitor = [3]", "NK103 monitor[0] must be a table with `use`, not the number 3"),
        (
            "[model]\nuse = './parts.py:Model'\ntransform = 'x'",
            "NK103 model.transform must be a list of tables, not",
        ),
    ],
)
def test_a_section_of_the_wrong_form(shop: Shop, text: str, said: str) -> None:
    without = (
        ("optimizer",) if text.startswith("optimizer") else ("train",) if text.startswith("train") else ()
    )
    with pytest.raises(PlanError) as caught:
        Plan.load(shop.plan(text, without=without))
    (problem,) = caught.value.problems
    assert said in str(problem)
    assert problem.place is not None
    assert problem.place.line == text.count("\n") + 1 or problem.code == "NK112"


def test_missing_sections_are_told_each(shop: Shop) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.load(shop.write("plan.toml", ""))
    lines = [str(problem).replace(f"{shop.folder}/", "") for problem in caught.value.problems]
    assert [line[: line.index(";")] for line in lines if ";" in line][:1] == [
        "plan.toml: NK109 the plan has no section [data]"
    ]
    assert [problem.code for problem in caught.value.problems] == ["NK109", "NK109", "NK109", "NK102"]


@pytest.mark.parametrize("name", ["a/b", "a\\b", "..", ".", " ", "", "a\nb", "x" * 201, "é" * 101, 3, ["a"]])
def test_a_name_that_can_be_no_folder_is_refused(shop: Shop, name: object) -> None:
    with pytest.raises(PlanError, match="NK103 name must be text that can name a folder"):
        Plan.of(shop.values(name=name), base=shop.folder)


def test_a_run_cannot_be_called_latest_not_even_after_its_file(shop: Shop) -> None:
    with pytest.raises(PlanError, match="NK105 name cannot be 'latest'"):
        Plan.of(shop.values(name="latest"), base=shop.folder)
    with pytest.raises(PlanError, match="NK105 name cannot be 'latest'"):
        Plan.load(shop.plan("", "latest.toml"))
    assert Plan.load(shop.plan("", "größe 1.toml")).name == "größe 1"


def test_a_run_needs_one_length(shop: Shop) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.load(shop.plan("[train]\nseed = 1\n"))
    (problem,) = caught.value.problems
    assert (problem.code, problem.hint) == ("NK102", "write one of steps, epochs, tokens")
    assert problem.place is not None
    assert problem.place.line == 1
    with pytest.raises(PlanError, match="NK108 train: the length of a run is given once, and steps gives it"):
        Plan.load(shop.plan("[train]\nsteps = 1\nepochs = 2\n"))
    with pytest.raises(
        PlanError, match=r"plan\.toml:3:9: NK108 train: micro is 9 and larger than batch, which is 8"
    ):
        Plan.load(shop.plan("[train]\nbatch = 8\nmicro = 9\nsteps = 1\n"))


# -- groups of settings ---------------------------------------------------------------------------------------------

GROUP = """
@settings
class Inner:
    deep: int = setting(default=1, ge=1)

@settings
class Group:
    a: int = setting(help="first")
    b: int = setting(default=2)
    inner: Inner = setting(default=Inner())

    def check_settings(self):
        if self.b == self.a:
            yield "b", "b is a once more"
"""


def test_a_group_takes_what_the_plan_leaves_out_from_its_default(shop: Shop) -> None:
    shop.own(
        "group: Group = setting(default=Group(a=5, b=6))\nother: Group | None = setting(default=None)",
        before=GROUP,
    )
    made: Any = shop.made("group = { b = 7 }\nother = { a = 1, inner = { deep = 3 } }")
    assert (made.group.a, made.group.b, made.group.inner.deep) == (5, 7, 1)
    assert (made.other.a, made.other.b, made.other.inner.deep) == (1, 2, 3)
    assert shop.made().other is None  # type: ignore[attr-defined]
    origins = {path: node.origin for path, node in shop.load("group = { b = 7 }").filled.walk()}
    assert origins["optimizer.group.a"] == "default"
    assert origins["optimizer.group.b"].endswith("plan.toml:3:15")


def test_mistakes_in_groups_are_found_at_any_depth(shop: Shop) -> None:
    shop.own(
        "group: Group = setting(default=Group(a=5))\nlist: list[Group] = setting(default=[])", before=GROUP
    )
    lines = shop.lines(
        "group = { bb = 1, inner = { deep = 0 } }\nlist = [{ a = 1 }, { a = 3, b = 3 }, 4, {}]\n"
    )
    assert [line.split(" [")[0] for line in lines] == [
        "plan.toml:3:11: NK101 optimizer.group: there is no setting 'bb'; did you mean 'b'?",
        "plan.toml:3:36: NK104 optimizer.group.inner.deep is 0, and must be at least 1",
        "plan.toml:4:33: NK108 optimizer.list[1]: b is a once more",
        "plan.toml:4:38: NK103 optimizer.list[2] must be a table, not the number 4",
        "plan.toml:4:41: NK102 optimizer.list[3].a is missing; a: first",
    ]


def test_a_component_in_a_group_that_may_be_left_out_is_placed_like_any_other(shop: Shop) -> None:
    shop.write(
        "nested.py",
        "from nlpkernel import component, hookimpl\n@component\nclass S:\n"
        "    @hookimpl\n    def create_schedule(self): ...\n",
    )
    before = "@settings\nclass Group:\n    schedule: Any = extension('schedule')\n"
    shop.own(
        "group: Group | None = setting(default=None)\nor_text: Group | str = setting(default='')",
        before=before,
    )
    table = 'group = { schedule = "./nested.py:S" }\nor_text = { schedule = { use = "./nested.py:S" } }'
    placed = [each.address for each in shop.load(table).compose().placed]
    at = placed.index("optimizer")
    assert placed[at : at + 3] == ["optimizer", "optimizer.group.schedule", "optimizer.or_text.schedule"]


def test_settings_that_do_not_go_together_stand_at_the_one_named(shop: Shop) -> None:
    shop.own(
        "a: int = setting(default=1)\nb: int = setting(default=1)",
        methods="def check_settings(self):\n    yield 'a', 'a is odd'\n    yield 'b', 'and so is b'\n",
    )
    lines = [line.split(" [")[0] for line in shop.lines("b = 3")]
    assert lines == [
        "plan.toml:1:2: NK108 optimizer: a is odd",
        "plan.toml:3:5: NK108 optimizer: and so is b",
    ]


# -- components in components ----------------------------------------------------------------------------------------

PIECES = """
from typing import Any
from nlpkernel import component, extension, hookimpl, setting

@component
class Piece:
    size: int = setting(default=1, ge=1)
    inner: Any = extension("piece", default=None)

@component
class Schedule:
    warmup: int = setting(default=0)

    @hookimpl
    def create_schedule(self): ...
"""
EXTENSIONS = """
schedule: Any = extension("schedule", default={"use": "./pieces.py:Schedule", "warmup": 7})
piece: Any = extension("piece", default=None)
pieces: Any = extension("piece", many=True)
twice: Any = extension("piece", many=True, default=["./pieces.py:Piece", {"use": "./pieces.py:Piece", "size": 2}])
needed: Any = extension("piece", help="a piece")
"""


@pytest.fixture
def nesting(shop: Shop) -> Shop:
    shop.write("pieces.py", PIECES)
    shop.own(EXTENSIONS)
    return shop


def test_components_nest_at_shared_points_and_at_points_of_a_plugins_own(nesting: Shop) -> None:
    table = """
        needed = "./pieces.py:Piece"
        piece = { use = "./pieces.py:Piece", size = 3, inner = { use = "./pieces.py:Piece", size = 4 } }
        [[optimizer.pieces]]
        use = "./pieces.py:Piece"
        size = 5
        [[optimizer.pieces]]
        use = "./pieces.py:Piece"
        inner = "./pieces.py:Piece"
    """
    made: Any = nesting.made(table)
    assert (made.schedule.warmup, made.piece.size, made.piece.inner.size, made.needed.size) == (7, 3, 4, 1)
    assert [piece.size for piece in made.pieces] == [5, 1]
    assert [piece.size for piece in made.twice] == [1, 2]
    plan = nesting.load(table)
    addresses = [placed.address for placed in plan.compose().placed if placed.address.startswith("optimizer")]
    assert addresses == [
        "optimizer",
        "optimizer.schedule",
        "optimizer.piece",
        "optimizer.piece.inner",
        "optimizer.pieces[0]",
        "optimizer.pieces[1]",
        "optimizer.pieces[1].inner",
        "optimizer.twice[0]",
        "optimizer.twice[1]",
        "optimizer.needed",
    ]
    again = Plan.load(nesting.write("elsewhere/again.toml", plan.text()))
    assert again.text() == plan.text()


def test_mistakes_in_nested_components_name_the_nested_one(nesting: Shop) -> None:
    lines = nesting.lines(
        'piece = { use = "./pieces.py:Piece", size = 0, inner = { use = "./pieces.py:Piece", sizes = 1 } }\n'
        'pieces = ["./pieces.py:Piece", { use = "./pieces.py:Peice" }, 3]\n'
    )
    assert [line.split(" [")[0] for line in lines] == [
        "plan.toml:1:2: NK102 optimizer.needed is missing; needed: a piece",
        "plan.toml:3:45: NK104 optimizer.piece.size is 0, and must be at least 1",
        "plan.toml:3:85: NK101 optimizer.piece.inner: there is no setting 'sizes'; did you mean 'size'?",
        "plan.toml:4:40: NK056 'pieces.py' has no 'Peice'; did you mean 'Piece'?",
        "plan.toml:4:63: NK103 optimizer.pieces[2] must be a table with `use`, not the number 3",
    ]
    assert "[Piece of pieces.py " in lines[1]
    assert "[Piece of pieces.py " in lines[2]


def test_null_takes_away_an_extension_that_may_be_left_out(nesting: Shop) -> None:
    table = {"use": "./own.py:Own", "needed": "./pieces.py:Piece", "piece": None}
    plan = Plan.of(nesting.values(optimizer=table), base=nesting.folder)
    assert plan.compose().slot("optimizer").component.piece is None
    with pytest.raises(PlanError, match=r"NK103 optimizer\.schedule cannot be null"):
        Plan.of(nesting.values(optimizer={**table, "schedule": None}), base=nesting.folder)


@pytest.mark.parametrize(
    "methods",
    [
        "def __attrs_post_init__(self):\n    raise ValueError('no such device')\n",
        "def check_settings(self):\n    raise ValueError('no such device')\n",
        "def check_settings(self):\n    yield ValueError('no such device')\n",
    ],
)
def test_case_p5_a_component_that_cannot_be_made_is_named_with_the_cause(shop: Shop, methods: str) -> None:
    shop.own("a: int = setting(default=1)", methods=methods)
    with pytest.raises(PluginError) as caught:
        shop.load()
    (problem,) = caught.value.problems
    assert problem.code == "NK060"
    assert "optimizer cannot be made: " in problem.message
    if "yield" not in methods:
        line = (shop.folder / "own.py").read_text().split("\n").index(
            "        raise ValueError('no such device')"
        ) + 1
        assert problem.message.endswith(f"ValueError: no such device ({shop.folder}/own.py:{line})")
    assert problem.owner is not None
    assert problem.owner.startswith(f"Own of {shop.folder}/own.py")


def test_a_default_that_breaks_its_own_rules_is_the_authors_fault(shop: Shop) -> None:
    shop.own("a: int = setting(default=0, ge=1)\nb: int = setting(default=None)")
    first, second = shop.lines()
    assert "NK104 optimizer.a is 0, and must be at least 1; this is what the component has by itself" in first
    assert "NK103 optimizer.b must be a whole number, not nothing (null)" in second


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


# -- everything at once ---------------------------------------------------------------------------------------------


def test_every_kind_of_mistake_is_told_in_one_go(shop: Shop) -> None:
    shop.write(
        "nested.py",
        "from nlpkernel import component, extension, hookimpl, setting\n"
        "@component\nclass Schedule:\n    warmup: int = setting(default=0, ge=0)\n"
        "    deeper: object = extension('a-point-of-its-own', default=None)\n"
        "    @hookimpl\n    def create_schedule(self): ...\n",
    )
    text = """\
nmae = "x"
[train]
steps = 2.9
bach = 3
[data]
use = "./parts.py:Data"
[data]
use = "./parts.py:Data"
[model]
use = "./parts.py:Modle"
[optimizer]
use = "./parts.py:Optimizer"
lr = "1e-4"
[optimizer.schedule]
use = "./nested.py:Schedule"
warmupp = 3
warmup = -1
deeper = { use = "nobody" }
[checkpoint]
use = "nobody-offers-this"
[[monitor]]
wrong = 1
"""
    path = shop.write("plan.toml", text)
    with pytest.raises(PlanError) as caught:
        Plan.load(path, ["train.clip=0", "nowhere.to.go=1", "train.steps[0]=3", "=3"])
    assert caught.value.exit_code == 2
    found = [
        (
            problem.code,
            problem.place.line if problem.place else None,
            problem.place.column if problem.place else None,
        )
        for problem in caught.value.problems
    ]
    assert sorted(found, key=str) == sorted(
        [
            ("NK007", None, None),  # train.steps[0]=3
            ("NK007", None, None),  # =3
            ("NK101", 0, 0),  # nowhere.to.go=1
            ("NK104", 0, 0),  # train.clip=0
            ("NK101", 1, 1),  # nmae
            ("NK103", 3, 9),  # steps = 2.9
            ("NK101", 4, 1),  # bach
            ("NK002", 7, 1),  # [data] twice
            ("NK056", 10, 7),  # Modle
            ("NK103", 13, 6),  # lr
            ("NK101", 16, 1),  # warmupp
            ("NK104", 17, 10),  # warmup
            ("NK106", 18, 18),  # nobody
            ("NK106", 20, 7),  # checkpoint
            ("NK112", 21, 3),  # monitor
        ],
        key=str,
    )
    assert sum(problem.hint is not None for problem in caught.value.problems) >= 10


def test_after_a_syntax_error_nothing_is_said_to_be_missing(shop: Shop) -> None:
    path = shop.plan('[data]\nuse = \n[optimizer]\nuse = "./parts.py:Optimizer"\nlr = true\n')
    with pytest.raises(PlanError) as caught:
        Plan.load(path)
    assert [problem.code for problem in caught.value.problems] == ["NK001", "NK103"]


def test_what_a_missing_base_would_give_is_not_said_to_be_missing(shop: Shop) -> None:
    path = shop.write(
        "plan.toml", 'extends = "gone.toml"\n[optimizer]\nuse = "./parts.py:Optimizer"\nlr = true\n'
    )
    with pytest.raises(PlanError) as caught:
        Plan.load(path)
    assert [problem.code for problem in caught.value.problems] == ["NK003", "NK103"]


@pytest.mark.parametrize("value", ["3", '"x"', "[1]", "{ a = 1 }"])
def test_an_override_is_checked_like_the_plan(kinds: Shop, value: str) -> None:
    lines = kinds.lines("lr = 1", f"optimizer.flag={value}", "optimizer.nope=1")
    assert lines[0].startswith("--set optimizer.flag: NK103 optimizer.flag must be true or false, not ")
    assert lines[1].startswith("--set optimizer.nope: NK101 optimizer: there is no setting 'nope'")


def test_a_bare_word_of_an_override_is_text_where_text_is_wanted(kinds: Shop) -> None:
    made: Any = kinds.made("lr = 1", "optimizer.text=word", "optimizer.way=down", "optimizer.lr=2")
    assert (made.text, made.way, made.lr) == ("word", "down", 2.0)
    (line,) = kinds.lines("", "optimizer.lr=fast")
    assert line.startswith('--set optimizer.lr: NK103 optimizer.lr must be a number, not the text "fast" [')


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
    from nlpkernel.cli.plan import diff

    plan = Plan.of(kinds.values(optimizer={"use": "./own.py:Own", **table}), base=kinds.folder)
    again = Plan.load(kinds.write("elsewhere/again.toml", plan.text()))
    assert diff(plan, again) == []
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
