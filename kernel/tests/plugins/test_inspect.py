"""What is said of a component: settings, types, defaults, ranges, presets, hooks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from nlpkernel import component, extension, hookimpl, setting, settings
from nlpkernel.components import Setting
from nlpkernel.errors import PluginError
from nlpkernel.plugins.catalog import Found
from nlpkernel.plugins.inspect import (
    describe,
    describe_found,
    plan_words,
    points_of,
    range_words,
    setting_lines,
    type_words,
)
from nlpkernel.plugins.scan import Offer


@settings
class Inner:
    """A table."""

    size: int = setting(default=200_000_000, ge=1, unit="bytes", help="how large")
    schedule: Any = extension("schedule", default="constant")


@component(presets={"small": {"rate": 0.5, "names": ["a"]}})
class Sample:
    """A sample.

    With a second paragraph.
    """

    rate: float = setting(gt=0, le=1, help="how fast")
    names: list[str] = setting(default=["x"], min_length=1)
    inner: Inner = setting(default=Inner())
    many: tuple[Inner, ...] = setting(default=())
    limit: int | None = setting(default=None)
    both: int | None = setting(default=3)
    mode: Literal["a", "b"] = setting(default="a")
    pair: tuple[float, bool] = setting(default=(0.5, True))
    where: Path = setting(default=Path("a"))
    preset: str | None = setting(default=None)
    tokenizer: Any = extension("tokenizer")
    policy: Any = extension("policy", many=True)
    _remembered: int = setting(default=0)

    @hookimpl
    def open_store(self, run: object, folder: object) -> None: ...

    @hookimpl
    def open_stoer(self, run: object) -> None: ...

    def helper(self) -> None: ...


FOUND = Found(Sample, "sample", "checkpoint", "m:Sample", "nlpkernel-plugin-sample", "1.0")


def test_settings_are_listed_in_order_and_tables_are_opened() -> None:
    lines = {line.name: line for line in setting_lines(Sample)}
    assert list(lines) == [
        "rate",
        "names",
        "inner",
        "inner.size",
        "inner.schedule",
        "many",
        "many.size",
        "many.schedule",
        "limit",
        "both",
        "mode",
        "pair",
        "where",
        "preset",
        "tokenizer",
        "policy",
    ]
    rate = lines["rate"]
    assert (rate.type, rate.default, rate.range, rate.help) == ("number", None, "> 0, <= 1", "how fast")
    assert (lines["names"].type, lines["names"].default) == ("list of text", '["x"]')
    assert lines["names"].range == "at least 1 long"
    assert (lines["inner"].type, lines["inner"].default) == ("table", "")
    size = lines["inner.size"]
    assert (size.type, size.default, size.unit) == ("whole number", "200000000", "bytes")
    assert size.range == '>= 1, bytes, or text like "200MB"'
    assert (lines["many"].type, lines["many"].default) == ("list of table", "[]")
    assert (lines["limit"].type, lines["limit"].default) == ("whole number", "left out")
    assert (lines["both"].type, lines["both"].default) == ("whole number or null", "3")
    assert (lines["mode"].type, lines["mode"].default) == ('"a" or "b"', '"a"')
    assert (lines["pair"].type, lines["pair"].default) == ("[number, true or false]", "[0.5, true]")
    assert (lines["where"].type, lines["where"].default) == ("path", '"a"')
    assert lines["tokenizer"].type == "tokenizer component"
    assert (lines["tokenizer"].default, lines["tokenizer"].point) == (None, "tokenizer")
    assert (lines["policy"].type, lines["policy"].default) == ("list of policy components", "[]")


def test_the_points_that_settings_open_are_found_in_tables_too() -> None:
    assert points_of(Sample) == {"tokenizer", "policy", "schedule"}


def test_a_component_is_described_without_making_one() -> None:
    description = describe_found(FOUND)
    assert description.doc == "A sample.\n\nWith a second paragraph."
    assert description.presets == {"small": {"rate": 0.5, "names": ["a"]}}
    assert [(hook.name, hook.kind) for hook in description.hooks] == [
        ("open_stoer", "unknown"),
        ("open_store", "pick"),
    ]
    assert description.hooks[1].help.startswith("Open the versions of the run")
    assert any(
        "open_stoer" in problem and "did you mean 'open_store'" in problem for problem in description.problems
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, "true or false"),
        (dict[str, int], "table of whole number"),
        (dict[str, list[Path]], "table of list of path"),
        (int | str, "whole number or text"),
        (tuple[int, ...], "list of whole number"),
        (Literal[1, True, "x"], '1 or true or "x"'),
        (Any, "anything"),
        (Inner, "table"),
        (complex, "complex"),
    ],
)
def test_types_are_told_in_words(kind: Any, words: str) -> None:
    assert type_words(kind) == words


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Setting(), ""),
        (Setting(ge=0, lt=2**63), ">= 0, < 9.22337e+18"),
        (Setting(gt=0.5, unit="seconds"), '> 0.5, seconds, or text like "5m"'),
        (Setting(unit="count", ge=1), '>= 1, count, or text like "300M"'),
        (Setting(secret=True), "secret: only ${NAME}"),
    ],
)
def test_ranges_are_told_in_words(facts: Setting, words: str) -> None:
    assert range_words(facts) == words


@pytest.mark.parametrize(
    "value",
    [True, 3, -0.25, 3e-4, "plain", 'a "b" \\ c\n\td\r', [1, [2, "x"]], {"a": 1, "b": {"c": [True]}}, [], {}],
)
def test_values_are_written_as_toml_reads_them(value: Any) -> None:
    import tomllib

    assert tomllib.loads(f"x = {plan_words(value)}") == {"x": value}


def offer(target: str) -> Offer:
    return Offer("checkpoint", 1, "sample", target, "nlpkernel-plugin-sample", "1.0", "/nowhere")


def test_describe_imports_the_module_of_the_offer_and_keeps_its_prints_from_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "printing_plugin.py").write_text(
        "from nlpkernel import component\nprint('hello')\n@component\nclass Own:\n    '''Own.'''\n", "utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    description = describe(offer("printing_plugin:Own"))
    assert (description.name, description.doc, description.release) == ("sample", "Own.", "1.0")
    assert [problem for problem in description.problems if "open_store" in problem]
    assert capsys.readouterr() == ("", "hello\n")
    assert "printing_plugin" in sys.modules


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_package_of_ours", ["no_such_package_of_ours"]),
        ("1 / 0", ["ZeroDivisionError", "broken_plugin.py:1"]),
        ("raise SystemExit(3)", ["SystemExit"]),
        ("x = (", ["SyntaxError"]),
        ("", ["Own"]),
        ("class Own: pass", ["is no component"]),
        (
            "from nlpkernel import component, setting\n@component\nclass Own:\n    x: 'Gone' = setting(help='x')\n",
            ["Own.x", "Gone"],
        ),
    ],
)
def test_what_cannot_be_loaded_is_an_error_with_the_real_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: Sequence[str]
) -> None:
    (tmp_path / "broken_plugin.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    with pytest.raises(PluginError) as caught:
        describe(offer("broken_plugin:Own"))
    (problem,) = caught.value.problems
    for word in (*words, "nlpkernel-plugin-sample", "1.0"):
        assert word in str(problem)


def test_every_code_has_a_title_and_an_explanation() -> None:
    from nlpkernel.plugins.codes import CODES

    codes: Mapping[str, tuple[str, str]] = CODES
    assert {f"NK{number:03}" for number in range(30, 41)} <= set(codes)
    for code, (title, text) in codes.items():
        assert code.startswith("NK0")
        assert title
        assert 2 <= len(text.split("\n")) <= 5
