"""Keys, groups and components of a plan checked against their classes: nothing is ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nlpkernel.errors import PlanError, PluginError
from nlpkernel.plan import Plan

if TYPE_CHECKING:
    from conftest import Shop


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
