from __future__ import annotations

import sys
import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nlpkernel.errors import Place
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.toml import read_toml, read_value

#: A later tomllib may read TOML 1.1, which accepts more; what it refuses is refused here all the same.
TOML_1_0 = sys.version_info < (3, 15)

PLAN = """\
# A plan.
name = "first"

[train]
seed = 1
tokens = "300M"
clip = 1.0
evaluate = { every = 200, splits.extra = ["a", 'b'] }

[data]
use = "text"
paths = [
    "corpus/*.txt",  # all of them
    'C:\\more\\*.txt',
]
tokenizer = { use = "bpe", vocabulary = 4_096 }
task.use = "lm"
prompt = \"\"\"
Once \\
    upon a "time"\"\"\"
since = 2024-05-01T07:32:00.5+02:00

[[model.transform]]
use = "lora"
[[model.transform]]
use = "other"
[model.transform.inner]
rank = 0x1f
[model]
use = "gpt"
limits = [inf, -nan, 1e-4]
"""


def expected(text: str) -> str | None:
    """What tomllib makes of a text, with types, order and NaN visible; None where it refuses."""
    try:
        return repr(tomllib.loads(text))
    except ValueError:
        return None


def check_against_tomllib(text: str) -> None:
    node, problems = read_toml(text, "p.toml")
    want = expected(text)
    if want is None:
        assert problems
    elif TOML_1_0 or not problems:
        assert problems == []
        assert repr(node.plain()) == want


def problems_of(text: str) -> list[str]:
    return [str(problem) for problem in read_toml(text, "p.toml")[1]]


def only_problem(text: str) -> str:
    problems = problems_of(text)
    assert len(problems) == 1, problems
    return problems[0]


# Documents made of statements over few names, so that many of them clash.

digits = st.text("0123456789", min_size=1, max_size=4)
signs = st.sampled_from(["", "+", "-"])
printable = st.characters(exclude_categories=("Cs", "Cc"))
controls = st.sampled_from(["\x00", "\x07", "\x1f", "\x7f", "\r", "\x0b"])
escapes = st.sampled_from(
    [
        "\\n",
        "\\t",
        "\\b",
        "\\f",
        "\\r",
        '\\"',
        "\\\\",
        "\\u00e9",
        "\\U0001F600",
        "\\ud800",
        "\\q",
        "\\u12",
        "\\ ",
    ]
)


@st.composite
def quoted(draw: st.DrawFn, long: bool = True) -> str:
    quote = draw(st.sampled_from(['"', "'", '"""', "'''"] if long else ['"', "'"]))
    parts = st.one_of(
        printable, printable, escapes, st.sampled_from(["", '"', "'", '""', "''", "\t"]), controls
    )
    if len(quote) == 3:
        parts = st.one_of(parts, st.sampled_from(["\n", "\\\n", "\\  \n\t ", "\r\n"]))
    return quote + "".join(draw(st.lists(parts, max_size=6))) + quote


@st.composite
def numbers(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["int", "under", "hex", "oct", "bin", "float", "exp", "const"]))
    whole = draw(digits)
    if draw(st.booleans()):
        whole = whole.lstrip("0") or "0"
    sign = draw(signs)
    fraction = "." + draw(digits) if draw(st.booleans()) else ""
    return {
        "int": sign + whole,
        "under": sign + whole + "_" + draw(digits),
        "hex": "0x" + draw(st.text("0123456789abcdefABCDEF_", min_size=1, max_size=5)),
        "oct": "0o" + draw(st.text("01234567_8", min_size=1, max_size=4)),
        "bin": "0b" + draw(st.text("01_2", min_size=1, max_size=5)),
        "float": sign + whole + "." + draw(digits),
        "exp": sign + whole + fraction + draw(st.sampled_from("eE")) + draw(signs) + draw(digits),
        "const": sign + draw(st.sampled_from(["inf", "nan", "true", "false", "True", "Inf", "infinity"])),
    }[kind]


two = st.integers(0, 62).map("{:02d}".format)


@st.composite
def moments(draw: st.DrawFn) -> str:
    day = f"{draw(st.integers(1, 9999)):04d}-{draw(two)}-{draw(two)}"
    if draw(st.booleans()):
        day = draw(st.dates()).isoformat()
    fraction = "." + draw(st.text("0123456789", min_size=0, max_size=9)) if draw(st.booleans()) else ""
    time = f"{draw(two)}:{draw(two)}:{draw(two)}{fraction}"
    if draw(st.booleans()):
        time = draw(st.times()).isoformat()
    zone = draw(st.sampled_from(["", "", "Z", "z", "+02:00", "-23:59", "+24:00", "-00:00", "+2"]))
    return draw(
        st.sampled_from([day, time, day + "T" + time + zone, day + " " + time + zone, day + "t" + time])
    )


names = st.sampled_from(["a", "b", "c", "1", '"a"', "'b'", '""', '"\\u0061"', "x-y_z"])
keys = st.lists(names, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([".", " . ", ".\t"]).map(lambda dot: dot.join(parts))
)
gaps = st.sampled_from(["", " ", "\n", " # note\n", "\t\n\n  ", "\r\n"])


def _nested(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.builds(
        lambda items, comma, gap: "[" + gap + ("," + gap).join(items) + (comma if items else "") + gap + "]",
        st.lists(values, max_size=3),
        st.sampled_from(["", ","]),
        gaps,
    )
    pairs = st.builds(
        lambda key, gap, value: f"{key}{gap}={gap}{value}", keys, st.sampled_from(["", " "]), values
    )
    tables = st.builds(
        lambda items, comma: "{" + ", ".join(items) + comma + "}",
        st.lists(pairs, max_size=3),
        st.sampled_from(["", "", "", " ", ","]),
    )
    return arrays | tables


values = st.recursive(st.one_of(quoted(), numbers(), numbers(), moments()), _nested, max_leaves=5)
small = st.sampled_from(["1", "2.5", '"x"', "[]", "{}", "[{}]", "{ a = 1 }", "[{ a.b = 1 }]"])
lines = st.one_of(
    st.builds("{}{} = {}".format, st.sampled_from(["", "  ", "\t"]), keys, small | values),
    keys.map("[{}]".format),
    keys.map("[[{}]]".format),
    keys.map("[ {} ] # head".format),
    st.just("# comment"),
    st.just(""),
)
documents = st.lists(lines, max_size=8).flatmap(
    lambda each: st.sampled_from(["\n", "\n", "\r\n"]).map(lambda end: end.join(each))
)


@given(documents)
@example("a = [1, 2] \r\nb = '''x\r\ny'''\r\n")
@example("[a.b]\n[a]\nb.c = 1")
@example("[a.b.c]\n[a]\nb.d = 1\n[a.b]")
@example("a = {b = {c = 1}, b.d = 2}")
@example("a.b = 1\n[a.c]\n[[a.d]]\n[a]")
@example("[[a]]\nb.c = 1\n[[a]]\nb.c = 1\n[a.b]")
@example("a = " + "9" * 5000)
def test_what_tomllib_reads_is_read_the_same_and_what_it_refuses_is_refused(text: str) -> None:
    check_against_tomllib(text)


@given(st.data())
def test_a_damaged_document_is_refused_exactly_where_tomllib_refuses_it(data: st.DataObject) -> None:
    text = PLAN if data.draw(st.booleans()) else data.draw(documents)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        drop = data.draw(st.integers(0, 2))
        put = data.draw(
            st.sampled_from([*"\"'[]{}=,.#\\:\n \t_0eax-+", '"""', "'''", "\r", "\r\n", "é", "\x00", ""])
        )
        text = text[:at] + put + text[at + drop :]
    check_against_tomllib(text)


def test_the_plan_of_these_tests_reads_without_problems() -> None:
    assert read_toml(PLAN, "p.toml")[1] == []


# Places


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", " ", "\t", "   "]),
            st.sampled_from(["=", " = ", "  =\t"]),
            small,
            st.booleans(),
        ),
        max_size=10,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_keys_and_values_know_their_line_and_column(rows: list[tuple[str, str, str, bool]], end: str) -> None:
    text = end.join(
        f"{indent}{f'{chr(34)}é😀{number}{chr(34)}' if odd else f'k{number}'}{equals}{value} # c"
        for number, (indent, equals, value, odd) in enumerate(rows)
    )
    root, problems = read_toml(text, "p.toml")
    assert problems == []
    for number, (indent, equals, _value, odd) in enumerate(rows):
        key = f"é😀{number}" if odd else f"k{number}"
        node = root.value[key]
        assert node.key_place == Place("p.toml", number + 1, len(indent) + 1)
        width = len(key) + (2 if odd else 0)
        assert node.place == Place("p.toml", number + 1, len(indent) + width + len(equals) + 1)


def test_every_kind_of_node_has_its_place() -> None:
    text = 'x.y = 1\n[a.b]\nt = { u = [1,\n  "é", 2] }\n[[l]]\n[[l]]\nz = 1\n[a]\n'
    root, problems = read_toml(text, "p.toml")
    assert problems == []
    found = {path: (str(node.place), str(node.key_place)) for path, node in root.walk()}
    assert found == {
        "": ("p.toml", "None"),
        "x": ("p.toml:1:1", "p.toml:1:1"),
        "x.y": ("p.toml:1:7", "p.toml:1:3"),
        "a": ("p.toml:8:1", "p.toml:8:2"),  # its own header, not that of a.b
        "a.b": ("p.toml:2:1", "p.toml:2:4"),
        "a.b.t": ("p.toml:3:5", "p.toml:3:1"),
        "a.b.t.u": ("p.toml:3:11", "p.toml:3:7"),
        "a.b.t.u[0]": ("p.toml:3:12", "None"),
        "a.b.t.u[1]": ("p.toml:4:3", "None"),
        "a.b.t.u[2]": ("p.toml:4:8", "None"),
        "l": ("p.toml:5:1", "p.toml:5:3"),
        "l[0]": ("p.toml:5:1", "p.toml:5:3"),
        "l[1]": ("p.toml:6:1", "p.toml:6:3"),
        "l[1].z": ("p.toml:7:5", "p.toml:7:1"),
    }


# All mistakes in one report

BROKEN = [
    '= "open',
    " 1",
    "= = 1",
    "= [1 2]",
    "= {a = 1 b = 2}",
    "= 1 2",
    "= 007",
    "= # no",
    '= "\\q"',
    ": ?",
    "= {a = 1",
]


@given(st.lists(st.one_of(st.none(), st.sampled_from(BROKEN)), max_size=12))
def test_each_broken_line_is_one_problem_and_the_others_are_read(rows: list[str | None]) -> None:
    text = "\n".join(
        f"good{n} = {n}" if row is None else f"bad{n} {row}" for n, row in enumerate([*rows, None])
    )
    root, problems = read_toml(text, "p.toml")
    broken = [n for n, row in enumerate(rows) if row is not None]
    # A colon for '=' is a problem of its own, beside that of the value.
    lines = [
        problem.place.line - 1 for problem in problems if problem.place and "found ':'" not in problem.message
    ]
    assert lines == broken
    good = {f"good{n}": n for n, row in enumerate([*rows, None]) if row is None}
    assert {key: each for key, each in root.plain().items() if key.startswith("good")} == good


def test_case_p2_a_duplicate_key_a_duplicate_table_and_a_syntax_error_come_in_one_report() -> None:
    text = "[data]\nuse = 1\nuse = 2\nlr = adamw\n[train]\nx = 1\n[data]\nuse = 3\nnew = 4\n"
    assert problems_of(text) == [
        "p.toml:3:1: NK002 the key 'use' is written twice; the first is at p.toml:2:1; remove one of them",
        "p.toml:4:6: NK001 expected a value, found 'adamw'; text stands in quotes: \"adamw\"",
        "p.toml:7:1: NK002 the table [data] is written twice; the first is at p.toml:1:1; join the two",
    ]
    # Keys of the second table are checked too; those that are there already are no further problem.
    assert read_toml(text, "p.toml")[0].plain() == {
        "data": {"use": 1, "lr": "adamw", "new": 4},
        "train": {"x": 1},
    }


def test_an_array_that_is_not_closed_does_not_swallow_what_follows() -> None:
    root, problems = read_toml('a = [1,\n  2\nb = 3\n[t]\nc = [\n[u]\nd = 4\ne = ["x"\n', "p.toml")
    assert [problem.place.line for problem in problems if problem.place] == [3, 6, 9]
    assert root.plain() == {"b": 3, "t": {}, "u": {"d": 4}}


def test_an_inline_table_over_several_lines_is_one_problem() -> None:
    root, problems = read_toml("a = {\n  b = 1, # c\n  c = [\n  2],\n  d = { e = 1 }\n}\nf = 1\n", "p.toml")
    assert [str(problem) for problem in problems] == [
        "p.toml:1:6: NK001 an inline table stands on one line; write what needs several lines under a [header]"
    ]
    assert root.plain() == {"a": {"b": 1, "c": [2], "d": {"e": 1}}, "f": 1}


def test_a_mistake_inside_an_inline_table_does_not_confuse_dotted_keys_after_it() -> None:
    root, problems = read_toml("x.a = 1\ny = { z = = }\nx.b = 2\n", "p.toml")
    assert len(problems) == 1
    assert root.plain() == {"x": {"a": 1, "b": 2}}


def test_keys_below_a_broken_header_are_in_no_other_table() -> None:
    root, problems = read_toml("[a]\nx = 1\n[b c]\nx = 2\n[d]\ny = 3\n", "p.toml")
    assert len(problems) == 1
    assert root.plain() == {"a": {"x": 1}, "d": {"y": 3}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("use = adamw", "1:7: NK001 expected a value, found 'adamw'; text stands in quotes: \"adamw\""),
        (
            "paths = [a/*.txt]",
            "1:10: NK001 expected a value, found 'a/*.txt'; text stands in quotes: \"a/*.txt\"",
        ),
        ("t = 300M # much", "1:5: NK001 expected a value, found '300M'; text stands in quotes: \"300M\""),
        ("x = True", "1:5: NK001 'True' is no TOML value; write true"),
        ("x = FALSE", "1:5: NK001 'FALSE' is no TOML value; write false"),
        ("x = None", "1:5: NK001 TOML has no value for nothing; leave the key out"),
        ("x = -Infinity", "1:5: NK001 '-Infinity' is no TOML value; write -inf"),
        ("x = 007", "1:5: NK001 '007' is no number; a number does not begin with a zero"),
        ("x = .5", "1:5: NK001 '.5' is no number; a point stands between digits: 0.5, 5.0"),
        ("x = “a”", "1:5: NK001 '“' does not begin a text; write straight quotes: \"...\" or '...'"),
        ("lr 3e-4", "1:4: NK001 expected '=' after the key 'lr', found '3e-4'; write lr = 3e-4"),
        ("lr: 3e-4", "1:3: NK001 expected '=' after the key 'lr', found ':'; TOML writes lr = ..."),
        ("lr == 3e-4", "1:5: NK001 expected a value, found '='"),
        ("lr =", "1:5: NK001 expected a value, found the end of the file"),
        ("lr = \nx = 1", "1:6: NK001 expected a value, found the end of the line"),
        ("lr = 1,", "1:7: NK001 expected the end of the line, found ','; a line ends without a comma"),
        (
            "a = 1 b = 2",
            "1:7: NK001 expected the end of the line, found 'b'; each setting stands on a line of its own",
        ),
        ("a = 2 h", "1:7: NK001 expected the end of the line, found 'h'; text stands in quotes"),
        (
            "größe = 1",
            "1:3: NK001 expected '=' after the key 'gr', found 'öße'; a key of other characters than"
            " A-Z a-z 0-9 _ - stands in quotes",
        ),
        ("\u00a0a = 1", "1:1: NK001 expected a key, found the character U+00A0"),
        (
            'p = "C:\\data"',
            "1:8: NK001 '\\d' is no escape; text between single quotes takes backslashes as they are:"
            " 'C:\\data'",
        ),
        (
            'p = "C:\\users"',
            "1:8: NK001 expected 4 hexadecimal digits after '\\u'; text between single quotes takes"
            " backslashes as they are: 'C:\\users'",
        ),
        (
            'p = "abc # d\n',
            '1:5: NK001 the text that begins here has no closing quote; expected " before the end of the'
            ' line; text of several lines stands between """',
        ),
        (
            "p = '''abc\n\n",
            "1:5: NK001 the text that begins here is not closed; expected ''' before the end of the file",
        ),
        ('p = "a\x07"', "1:7: NK001 the character U+0007 may not stand in a text; write it as \\u0007"),
        ("p = 1 # \x07", "1:9: NK001 the character U+0007 may not stand in a comment"),
        (
            "t = { a = 1, }",
            "1:14: NK001 expected a key after ',', found '}'; an inline table ends without a comma",
        ),
        (
            "t = { a = 1",
            "1:12: NK001 expected ',' or '}' in the inline table that begins at 1:5, found the end of the"
            " file",
        ),
        ("[t", "1:3: NK001 expected ']' at the end of the header, found the end of the file"),
        ("[[t]", "1:4: NK001 expected ']]' at the end of the header, found ']'"),
        ("[]", "1:2: NK001 expected a key, found ']'"),
        ("d = 2023-02-29", "1:5: NK001 '2023-02-29' is no date or time: day is out of range for month"),
        ("a = 1\n[a]", "2:1: NK002 'a' is a value already, at p.toml:1:1"),
        (
            "[a]\n[[a]]",
            "2:1: NK002 'a' is a table already, at p.toml:1:2; a list of tables has [[a]] before each of"
            " them",
        ),
        (
            "[[a]]\n[a]",
            "2:1: NK002 'a' is a list of tables already, at p.toml:1:3; write [[a]] to add an entry",
        ),
        ("[a.b]\n[a]\nb.c = 1", "3:1: NK002 'b' is a table already, at p.toml:1:4"),
        ("a.b = 1\na.b.c = 2", "2:3: NK002 'a.b' is a value already, at p.toml:1:3"),
    ],
)
def test_a_message_says_what_was_expected_and_what_to_write(text: str, message: str) -> None:
    assert only_problem(text) == f"p.toml:{message}"


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 200 + "]" * 200,
        "a = " + "{b = " * 200 + "1" + "}" * 200,
        ".".join("a" * 200) + " = 1",
        "[" + ".".join("a" * 99) + "]\nb.c = 1",
        "a = " + "{b.c.d = " * 50 + "1" + "}" * 50,
    ],
)
def test_nesting_without_bound_is_a_problem_and_no_crash(text: str) -> None:
    root, problems = read_toml(text, "p.toml")
    assert [problem.code for problem in problems] == ["NK014"]
    assert root.plain() is not None


# One value alone


def test_a_single_value_has_the_given_place_everywhere() -> None:
    place = Place("--set a")
    node = read_value('{ use = "sgd", betas = [0.9, 0.95] }', place)
    assert node is not None
    assert node.plain() == {"use": "sgd", "betas": [0.9, 0.95]}
    assert {each.place for _, each in node.walk()} == {place}


@pytest.mark.parametrize(
    "text", ["nano", "", "1 2", "[a]", "1e-4x", "True", "{a = 1,}", "1 # c", '"a', "a = 1", "1\n"]
)
def test_what_is_no_toml_value_is_none(text: str) -> None:
    assert read_value(text, Place("x")) is None


@given(values)
def test_a_single_value_is_what_it_is_in_a_document(text: str) -> None:
    node = read_value(text, Place("x"))
    # `read_value` takes nothing beside the value, so a text that ends in a comment or another line is none.
    want = expected(f"x = {text}")
    if want is None:
        assert node is None
    else:
        assert isinstance(node, Node)
        assert repr({"x": node.plain()}) == want
