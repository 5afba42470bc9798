from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.plan import codes
from nlpkernel.plan.environment import escape_references
from nlpkernel.plan.load import load_file, load_mapping
from nlpkernel.plan.merge import merged
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.writer import write_toml


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str | bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def load(text: str, *overrides: str, **environ: str) -> Any:
    """The plain values of a plan that has no problem."""
    root, problems = load_file(write("plan.toml", text), overrides=overrides, environ=environ)
    assert problems == []
    return root.plain()


def problems(text: str, *overrides: str, **environ: str) -> list[str]:
    return [
        str(each) for each in load_file(write("plan.toml", text), overrides=overrides, environ=environ)[1]
    ]


def test_every_code_is_explained() -> None:
    used = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)}
    assert used == set(codes.CODES)
    assert all(title and 1 <= text.count("\n") <= 5 for title, text in codes.CODES.values())


# Files


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_plan_is_utf8_with_or_without_a_byte_order_mark(mark: bytes) -> None:
    root, found = load_file(write("plän.toml", mark + 'name = "é😀"\n'.encode()), environ={})
    assert found == []
    assert root.plain() == {"name": "é😀"}
    assert root.value["name"].origin == "plän.toml:1:8"


def test_a_plan_reads_the_same_under_any_locale(tmp_path: Path) -> None:
    write("plän.toml", b"\xef\xbb\xbf" + 'name = "é😀"\n'.encode())
    code = (
        "import sys; from pathlib import Path; from nlpkernel.plan.load import load_file\n"
        "root, problems = load_file(next(Path('.').glob('pl*.toml')), environ={})\n"
        "sys.exit(root.plain() != {'name': '\\xe9\\U0001f600'} or bool(problems))"
    )
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path, check=False).returncode == 0
    )


def test_what_is_not_utf8_has_a_place_in_code_points() -> None:
    write("plan.toml", 'a = 1\r\nb = "é😀'.encode() + b'\xff"\n')
    assert [str(each) for each in load_file(Path("plan.toml"))[1]] == [
        "plan.toml:2:8: NK004 the file is not UTF-8: byte 0xff does not fit; save the file as UTF-8"
    ]
    write("plan.toml", "a = 1".encode("utf-16"))
    assert "the file is UTF-16; save it as UTF-8" in str(load_file(Path("plan.toml"))[1][0])


def test_a_missing_file_is_a_problem_that_says_what_was_perhaps_meant() -> None:
    write("plans/plan.toml", "")
    write("plans/notes.txt", "")

    def message(name: str) -> str:
        root, [problem] = load_file(Path(name))
        assert root.plain() == {}
        return str(problem)

    near = Path("plans") / "plan.toml"
    assert (
        message("plans/plam.toml") == f"plans/plam.toml: NK003 the plan does not exist; did you mean {near}?"
    )
    assert message("plans/plan.yaml").endswith(f"did you mean {near}?")
    assert message("plans/plan").endswith(f"did you mean {near}?")
    assert message("plans/quite-other.toml").endswith("plans beside it: plan.toml")
    assert message("nowhere/plan.toml").endswith("there is no folder nowhere")
    assert message("elsewhere.json") == "elsewhere.json: NK003 the plan does not exist"


def test_what_cannot_be_opened_is_a_problem_with_the_reason() -> None:
    write("plan.toml", "")
    assert "cannot be read: Is a directory; did you mean plan.toml?" in str(load_file(Path("."))[1][0])
    assert "NK003 the plan cannot be read: embedded null byte" in str(load_file(Path("a\0.toml"))[1][0])
    Path("loop.toml").symlink_to("loop.toml")
    assert "NK003 the plan cannot be read: Too many levels" in str(load_file(Path("loop.toml"))[1][0])


def test_an_unknown_format_lists_the_known_ones() -> None:
    write("plan.ini", "")
    write("plan", "")
    hint = "the name of a plan ends in .toml, .yaml, .yml or .json"
    assert (
        str(load_file(Path("plan.ini"))[1][0])
        == f"plan.ini: NK005 the plan has an unknown format, .ini; {hint}"
    )
    assert str(load_file(Path("plan"))[1][0]) == f"plan: NK005 the plan has an unknown format; {hint}"


def test_case_p1_a_rate_is_the_same_number_in_every_format() -> None:
    texts = {
        "toml": 'lr = 1e-4\nb = "1e-4"\nc = 1\nd = true',
        "json": '{"lr": 1e-4, "b": "1e-4", "c": 1, "d": true}',
        "yaml": "lr: 1e-4\nb: '1e-4'\nc: 1\nd: true",
        "yml": "lr: 1e-4\nb: '1e-4'\nc: 1\nd: true",
        "JSON": '{"lr": 1e-4, "b": "1e-4", "c": 1, "d": true}',
    }
    for suffix, text in texts.items():
        root, found = load_file(write(f"plan.{suffix}", text), environ={})
        assert found == []
        assert repr(root.plain()) == "{'lr': 0.0001, 'b': '1e-4', 'c': 1, 'd': True}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.json", "[1]", "p.json:1:1: NK001 a plan is a table of settings, and this is a list"),
        ("p.json", "null", "p.json:1:1: NK001 a plan is a table of settings, and this is a single value"),
        ("p.yaml", "text", "p.yaml:1:1: NK001 a plan is a table of settings, and this is a single value"),
    ],
)
def test_a_plan_that_is_no_table_is_refused(name: str, text: str, message: str) -> None:
    root, found = load_file(write(name, text))
    assert [str(each) for each in found] == [message]
    assert root.plain() == {}


def test_empty_toml_and_yaml_are_empty_plans() -> None:
    for name in ("p.toml", "p.yaml"):
        root, found = load_file(write(name, "# nothing\n"))
        assert (root.plain(), found) == ({}, [])


# Extends


def test_tables_merge_and_everything_else_replaces() -> None:
    write(
        "base.toml",
        'name = "base"\n[data]\nuse = "text"\npaths = ["a", "b"]\ntokenizer = { use = "bpe", size = 1 }',
    )
    text = 'extends = "base.toml"\n[data]\npaths = ["c"]\ntokenizer.size = 2\n[train]\nsteps = 1'
    assert load(text) == {
        "name": "base",
        "data": {"use": "text", "paths": ["c"], "tokenizer": {"use": "bpe", "size": 2}},
        "train": {"steps": 1},
    }


def test_a_table_for_another_component_replaces_that_of_the_base_whole() -> None:
    write("base.toml", '[optimizer]\nuse = "adamw"\nlr = 1\nschedule = { use = "cosine", warmup = 3 }')
    assert load('extends = "base.toml"\n[optimizer]\nuse = "sgd"\nmomentum = 0.9') == {
        "optimizer": {"use": "sgd", "momentum": 0.9}
    }
    assert load('extends = "base.toml"\n[optimizer]\nuse = "adamw"\nschedule.use = "linear"') == {
        "optimizer": {"use": "adamw", "lr": 1, "schedule": {"use": "linear"}}
    }


def test_of_several_bases_the_later_one_has_precedence_and_formats_mix() -> None:
    write("a.json", '{"x": 1, "y": {"a": 1}}')
    write("b.yaml", "x: 2\ny: {b: 2}\n")
    assert load('extends = ["a.json", "b.yaml"]\nz = 3') == {"x": 2, "y": {"a": 1, "b": 2}, "z": 3}


def test_paths_start_from_the_file_that_wrote_them_and_every_value_knows_its_own() -> None:
    write("shared/deep/root.toml", "[a]\nx = 1\n")
    write("shared/base.toml", 'extends = "deep/root.toml"\n[a]\ny = [2]\n')
    write("plans/plan.toml", 'extends = "../shared/base.toml"\n[a]\nz = 3\n')
    root, found = load_file(Path("plans/plan.toml"), environ={})
    assert found == []
    table = root.value["a"].value
    here = Path.cwd()
    facts = {key: (node.origin, node.base) for key, node in table.items()}
    assert facts == {
        "x": (f"{Path('shared/deep/root.toml')}:2:5", here / "shared" / "deep"),
        "y": (f"{Path('shared/base.toml')}:3:5", here / "shared"),
        "z": (f"{Path('plans/plan.toml')}:3:5", here / "plans"),
    }
    assert table["y"].value[0].base == here / "shared"
    assert root.value["a"].origin == f"{Path('plans/plan.toml')}:2:1"


def test_a_path_with_dots_behind_a_link_is_that_of_the_system() -> None:
    write("far/away/base.toml", "x = 'far'")
    write("base.toml", "x = 'near'")
    write("far/away/inner/plan.toml", "")
    Path("link").symlink_to(Path("far") / "away" / "inner", target_is_directory=True)
    root, found = load_file(write("plan.toml", 'extends = "link/../base.toml"'))
    assert found == []
    assert root.plain() == {"x": "far"}


def test_a_circle_is_refused_with_its_chain() -> None:
    write("a.toml", 'extends = "sub/b.toml"\nx = 1')
    write("sub/b.toml", 'extends = "../c.toml"\ny = 2')
    write("c.toml", 'extends = ["a.toml"]\nz = 3')
    root, found = load_file(Path("a.toml"), environ={})
    b = Path("sub/b.toml")
    assert [str(each) for each in found] == [
        f"c.toml:1:12: NK006 plans extend each other in a circle: a.toml -> {b} -> c.toml -> a.toml"
    ]
    assert root.plain() == {"x": 1, "y": 2, "z": 3}
    assert "me.toml -> me.toml" in str(load_file(write("me.toml", 'extends = "./me.toml"'))[1][0])


def test_a_base_that_two_files_share_is_no_circle_and_is_read_once() -> None:
    write("root.toml", "x = 1\ny = 1\nbad =\n")
    write("a.toml", 'extends = "root.toml"\ny = 2')
    write("b.toml", 'extends = "root.toml"\nz = 3')
    root, found = load_file(write("plan.toml", 'extends = ["a.toml", "b.toml"]'))
    assert len(found) == 1
    assert root.plain() == {"x": 1, "y": 1, "z": 3}


def test_a_chain_may_have_any_length() -> None:
    count = 1200
    for number in range(count):
        below = f'extends = "p{number + 1}.toml"\n' if number + 1 < count else ""
        write(f"p{number}.toml", f"{below}x = {number}\nlast = {number}\n[t]\nk{number % 7} = {number}\n")
    root, found = load_file(Path("p0.toml"), environ={})
    assert found == []
    assert (root.value["x"].value, len(root.value["t"].value)) == (0, 7)


def test_bases_that_cannot_be_read_are_named_where_they_are_asked_for() -> None:
    write("plan.ini", "")
    write("broken.toml", "a = \nb = ?")
    text = 'extends = [\n"bass.toml", "plan.ini", ".", 3, "",\n"broken.toml"]\nc = ='
    write("base.toml", "")
    assert problems(text) == [
        "plan.toml:4:5: NK001 expected a value, found '='",
        "plan.toml:2:1: NK003 the plan bass.toml does not exist; did you mean base.toml?",
        "plan.toml:2:14: NK005 the plan plan.ini has an unknown format, .ini; the name of a plan ends in .toml, .yaml,"
        " .yml or .json",
        "plan.toml:2:26: NK003 the plan . cannot be read: Is a directory; did you mean base.toml?",
        'plan.toml:2:31: NK012 extends is no path of a plan; write extends = "base.toml", or a list of such paths',
        'plan.toml:2:34: NK012 extends is no path of a plan; write extends = "base.toml", or a list of such paths',
        "broken.toml:1:5: NK001 expected a value, found the end of the line",
        "broken.toml:2:5: NK001 expected a value, found '?'; text stands in quotes: \"?\"",
    ]
    assert [each[:23] for each in problems("extends = { a = 1 }")] == ["plan.toml:1:11: NK012 e"]


plain_trees = st.recursive(
    st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(["use", "a", "b"]), inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(st.sampled_from(["use", "a", "b"]), plain_trees, max_size=3)


def node(value: Any) -> Node:
    return load_mapping({"v": value}, base=Path("."), environ={})[0].value["v"]


@given(tables)
def test_a_plan_over_itself_or_over_nothing_is_itself(value: dict[str, Any]) -> None:
    assert merged(node(value), node(value)).plain() == value
    assert merged(node({}), node(value)).plain() == value
    assert merged(node(value), node({})).plain() == value


@given(tables, tables)
def test_everything_of_the_upper_plan_is_there_after_merging(
    below: dict[str, Any], above: dict[str, Any]
) -> None:
    def within(part: Any, whole: Any) -> bool:
        if isinstance(part, dict) and isinstance(whole, dict):
            return all(key in whole and within(each, whole[key]) for key, each in part.items())
        return bool(part == whole)

    lower, upper = node(below), node(above)
    assert within(above, merged(lower, upper).plain())
    assert (lower.plain(), upper.plain()) == (below, above)


# Overrides

MODEL = """
[model]
use = "gpt"
preset = "small"
[[monitor]]
use = "console"
every = 5
[optimizer]
use = "adamw"
lr = 1
schedule = { use = "cosine", warmup = 3 }
"""


def test_an_override_is_typed_like_toml_or_a_bare_word() -> None:
    texts = {
        "a=1": 1,
        "a=1e-4": 1e-4,
        "a=true": True,
        'a="1"': "1",
        "a=[1, 2]": [1, 2],
        "a={b=1}": {"b": 1},
        "a=nano": "nano",
        "a=": "",
        "a=x=y": "x=y",
        "a=/data/*.txt": "/data/*.txt",
        "a = 2 ": 2,
        "a=True": "True",
        "a='x'": "x",
    }
    for text, value in texts.items():
        root, found = load_file(write("plan.toml", ""), overrides=[text], environ={})
        assert found == []
        assert root.plain() == {"a": value}
        assert root.value["a"].bare == (text in ("a=nano", "a=", "a=x=y", "a=/data/*.txt", "a=True"))


def test_what_an_override_sets_says_so() -> None:
    root, found = load_file(write("plan.toml", MODEL), overrides=["model.new.deep={x=[1]}"], environ={})
    assert found == []
    new = root.value["model"].value["new"]
    assert {each.origin for _, each in new.walk()} == {"--set"}
    assert {each.base for _, each in new.walk()} == {Path.cwd()}
    assert str(new.place) == "--set model.new.deep"
    assert root.value["model"].origin == "plan.toml:2:1"
    assert root.value["model"].value["use"].origin == "plan.toml:3:7"


def test_overrides_reach_entries_of_lists_and_append_new_ones() -> None:
    result = load(
        MODEL,
        "monitor[0].every=7",
        "monitor[+].use=jsonl",
        "monitor[1].path=out",
        "monitor[+]={use='x'}",
        'new[+]."a b"=1',
        "model.preset=nano",
    )
    assert result["monitor"] == [
        {"use": "console", "every": 7},
        {"use": "jsonl", "path": "out"},
        {"use": "x"},
    ]
    assert result["new"] == [{"a b": 1}]
    assert result["model"] == {"use": "gpt", "preset": "nano"}


def test_an_override_of_use_drops_what_was_meant_for_the_other_component() -> None:
    assert load(MODEL, "optimizer.use=sgd")["optimizer"] == {"use": "sgd"}
    assert load(MODEL, "optimizer.use=adamw")["optimizer"]["lr"] == 1
    assert load(MODEL, "optimizer.schedule.use=linear")["optimizer"]["schedule"] == {"use": "linear"}
    assert load(MODEL, "monitor[0].use=jsonl")["monitor"] == [{"use": "jsonl"}]
    assert load(MODEL, 'optimizer={use="sgd",lr=0.1}')["optimizer"] == {"use": "sgd", "lr": 0.1}
    assert load(MODEL, "optimizer={lr=0.1}")["optimizer"]["schedule"] == {"use": "cosine", "warmup": 3}
    assert load(MODEL, "optimizer=sgd")["optimizer"] == "sgd"


def test_overrides_are_one_layer_whatever_their_order() -> None:
    want = {"use": "sgd", "lr": 0.5, "schedule": {"warmup": 9}}
    several = ["optimizer.lr=0.5", "optimizer.use=sgd", "optimizer.schedule.warmup=9"]
    for first in range(3):
        assert load(MODEL, *several[first:], *several[:first])["optimizer"] == want
    # What counts in the end is the component that the last one names.
    assert load(MODEL, "optimizer.use=sgd", "optimizer.use=adamw")["optimizer"]["lr"] == 1
    assert load(MODEL, 'optimizer={use="sgd"}', "optimizer.use=adamw")["optimizer"]["lr"] == 1


def test_a_null_of_the_plan_is_nothing_that_an_override_has_to_go_through() -> None:
    root, found = load_file(write("p.json", '{"a": null}'), overrides=["a.b=1"], environ={})
    assert (root.plain(), found) == ({"a": {"b": 1}}, [])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.preset", "expected '=' after model.preset; write key.path=value, "),
        ("", "a key is missing; write"),
        ("=1", "expected a key, found '='; write"),
        ("model..x=1", "expected a key, found '.'; write"),
        ("a b=1", "expected '=' after a, found 'b'; write"),
        ("a[x]=1", "expected '=' after a, found '['; write"),
        ('"a=1', "the text that begins here has no closing quote"),
        ("model.preset.x=1", "model.preset is the value 'small' and not a table"),
        ("model[0]=1", "model is a table and not a list"),
        (
            "monitor.use=x",
            "monitor is a list and not a table; its entries are [0], [1], ..., and [+] appends one",
        ),
        ("monitor[1].use=x", "monitor has 1 entry, counted from 0; [+] appends one"),
        ("monitor[0].new[0].x=1", "monitor[0].new has 0 entries, counted from 0; [+] appends one"),
        ("extends=x.toml", "it comes too late to extend another plan; write extends in the plan"),
        (".".join("a" * 101) + "=1", "the path has more than 100 steps"),
    ],
)
def test_an_override_that_cannot_be_applied_is_named_and_changes_nothing(override: str, message: str) -> None:
    root, [problem] = load_file(write("plan.toml", MODEL), overrides=[override], environ={})
    assert (problem.code, problem.place) == ("NK007", None)
    assert str(problem).startswith(f"NK007 the override {override!r}: {message}")
    assert root.plain() == load(MODEL)


def test_a_message_shows_no_value_of_the_environment() -> None:
    for text in ('a = "${KEY}"', 'a = "x${KEY}"'):
        [message] = problems(text, "a.b=1", KEY="hidden")
        assert "${KEY}" in message
        assert "hidden" not in message


# Environment


def test_a_text_that_is_one_reference_is_typed_and_keeps_what_was_written() -> None:
    text = 'a = "${LR}"\nb = "${NAME}"\nc = ["${LIST}"]\nd = "${NO:-1e-4}"\ne = "${EMPTY}"\nf = "${EMPTY:-x}"'
    environ = {"LR": "1e-4", "NAME": "nano", "LIST": '[1, "${LR}"]', "EMPTY": ""}
    root, found = load_file(write("plan.toml", text), environ=environ)
    assert found == []
    assert root.plain() == {"a": 1e-4, "b": "nano", "c": [[1, "${LR}"]], "d": 1e-4, "e": "", "f": "x"}
    assert root.value["a"].reference == "${LR}"
    assert (root.value["a"].bare, root.value["b"].bare) == (False, True)
    assert root.value["a"].origin == "plan.toml:1:5"


def test_a_reference_in_a_longer_text_gives_text() -> None:
    root, found = load_file(write("plan.toml", 'a = "${N}0"\nb = "$${N} $ {N} $N"'), environ={"N": "1"})
    assert found == []
    assert root.plain() == {"a": "10", "b": "${N} $ {N} $N"}
    assert root.value["a"].reference == "${N}0"
    assert root.value["b"].reference is None


def test_references_that_cannot_be_filled_have_their_place() -> None:
    text = 'a = "${NOT}"\nb = { c = ["x${NOT}${NEITHER}"] }\nd = "${1}"\ne = "${A:-${B}}"\nf = "${A"'
    literal = "write ${NAME} or ${NAME:-fallback}, or $${ for a literal ${"
    assert problems(text) == [
        "plan.toml:1:5: NK008 the environment variable NOT is not set; set it, or write ${NOT:-fallback}",
        "plan.toml:2:12: NK008 the environment variable NOT is not set; set it, or write ${NOT:-fallback}",
        "plan.toml:2:12: NK008 the environment variable NEITHER is not set; set it, or write ${NEITHER:-fallback}",
        f"plan.toml:3:5: NK011 '${{1}}' begins no reference; {literal}",
        f"plan.toml:4:5: NK011 '${{A:-${{B}}}}' begins no reference; {literal}",
        "plan.toml:4:5: NK008 the environment variable B is not set; set it, or write ${B:-fallback}",
        f"plan.toml:5:5: NK011 '${{A' begins no reference; {literal}",
    ]


def test_a_reference_that_no_value_of_the_plan_holds_any_more_may_be_unset() -> None:
    write("base.toml", 'a = "${NOT}"\n[o]\nuse = "x"\nkey = "${NOT}"')
    assert load('extends = "base.toml"\na = 1\n[o]\nuse = "y"') == {"a": 1, "o": {"use": "y"}}
    assert load('a = "${NOT}"', "a=1") == {"a": 1}


def test_references_stand_in_overrides_extends_and_use_too() -> None:
    write("base.toml", '[o]\nuse = "sgd"\nlr = 1')
    text = 'extends = "${BASE}.toml"\n[o]\nuse = "${OPT}"'
    assert load(text, "x=${N}", "y=a${N}", BASE="base", OPT="sgd", N="1") == {
        "o": {"use": "sgd", "lr": 1},
        "x": 1,
        "y": "a1",
    }
    assert load(text, BASE="base", OPT="other") == {"o": {"use": "other"}}
    assert problems(text, "x=${N}", OPT="sgd") == [
        "plan.toml:1:11: NK008 the environment variable BASE is not set; set it, or write ${BASE:-fallback}",
        "--set x: NK008 the environment variable N is not set; set it, or write ${N:-fallback}",
    ]


@given(st.text(max_size=20) | st.text("${}N:-", max_size=12))
def test_an_escaped_text_is_read_as_it_is(text: str) -> None:
    root, found = load_mapping({"a": escape_references(text)}, base=Path("."), environ={"N": "1"})
    assert (root.plain(), found) == ({"a": text}, [])


# Python values


def test_python_values_are_read_like_a_file(tmp_path: Path) -> None:
    write("base.toml", "[train]\nsteps = 1\nseed = 2")
    value = {"extends": "base.toml", "train": {"steps": 3}, "paths": (tmp_path, "x"), "n": None, "e": "${N}"}
    root, found = load_mapping(value, base=Path("."), overrides=["train.clip=1.0"], environ={"N": "7"})
    assert found == []
    assert root.plain() == {
        "train": {"steps": 3, "seed": 2, "clip": 1.0},
        "paths": [str(tmp_path), "x"],
        "n": None,
        "e": 7,
    }
    steps = root.value["train"].value["steps"]
    assert (steps.origin, steps.base, str(steps.place), steps.place.line) == ("<plan>", tmp_path, "<plan>", 0)
    assert root.value["train"].value["clip"].base == tmp_path
    assert value["extends"] == "base.toml"


def test_python_values_that_are_no_plan_are_problems() -> None:
    looped: dict[str, Any] = {}
    looped["again"] = looped
    assert [each.code for each in load_mapping(looped, base=Path("."), environ={})[1]] == ["NK014"]
    assert [str(each) for each in load_mapping({1: 2, "a": {None: 3}}, base=Path("."), environ={})[1]] == [  # type: ignore[dict-item]
        "<plan>: NK013 a key must be text, not 1",
        "<plan>: NK013 a key must be text, not None",
    ]


@given(
    st.recursive(
        st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ).filter(lambda value: isinstance(value, dict) and "extends" not in value)
)
def test_what_is_written_loads_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]
) -> None:
    def escaped(each: Any) -> Any:
        if isinstance(each, dict):
            return {key: escaped(inner) for key, inner in each.items()}
        if isinstance(each, list):
            return [escaped(inner) for inner in each]
        return escape_references(each) if isinstance(each, str) else each

    path = tmp_path_factory.getbasetemp() / f"written-{os.getpid()}.toml"
    path.write_bytes(write_toml(escaped(value)).encode("utf-8"))
    assert load_file(path, environ={})[0].plain() == value
    assert load_mapping(escaped(value), base=path.parent, environ={})[0].plain() == value
