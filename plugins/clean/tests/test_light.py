from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import nlpkernel_clean
from nlpkernel.components import is_component
from nlpkernel_clean.codes import CODES
from nlpkernel_sdk.light import brought, faults_of_codes, without_help

SOURCE = Path(nlpkernel_clean.__file__).parent
STAGES = {
    each.name: each
    for each in entry_points(group="nlpkernel.stage.v1")
    if each.value.startswith("nlpkernel_clean")
}


def test_the_components_import_nothing_heavy() -> None:
    assert not brought(
        [f"nlpkernel_clean.components.{path.stem}" for path in SOURCE.glob("components/*.py")],
        {"torch", "numpy", "ftfy", "phonenumbers", "py3langid", "regex", "sklearn"},
    )


def test_every_stage_is_offered_and_every_setting_has_help() -> None:
    assert sorted(STAGES) == [
        "duplicates",
        "filter",
        "label-noise",
        "language",
        "length",
        "near-duplicates",
        "normalize",
        "pii",
        "quality",
        "replace",
    ]
    for point in STAGES.values():
        cls = point.load()
        assert is_component(cls)
        assert not without_help(cls)


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    assert not faults_of_codes(nlpkernel_clean, CODES)


@pytest.mark.parametrize(
    ("name", "settings", "wrong"),
    [
        ("length", {"least": 5, "most": 4}, "most"),
        ("length", {"long": "truncate"}, "long"),
        ("language", {"languages": ("en",), "among": ("de",)}, "among"),
        ("quality", {"least_words": 9, "most_words": 4}, "most_words"),
        ("quality", {"least_stop_words": 9}, "least_stop_words"),
        ("pii", {"replacement": {"mail": "x"}}, "replacement"),
        ("pii", {"kinds": ("name",)}, "names"),
        ("pii", {"names": Path("list.txt")}, "names"),
        ("pii", {"regions": ()}, "regions"),
        ("filter", {}, "pattern"),
        ("filter", {"pattern": "("}, "pattern"),
        ("filter", {"pattern": "x", "values": ("a",)}, "values"),
        ("filter", {"pattern": "x", "column": "c", "values": ("a",)}, "values"),
    ],
)
def test_settings_that_do_not_go_together_are_said_at_their_setting(
    name: str, settings: dict[str, object], wrong: str
) -> None:
    said = list(STAGES[name].load()(**settings).check_settings())
    assert wrong in [setting for setting, _ in said]


@pytest.mark.parametrize(
    ("pattern", "text", "right"),
    [
        ("[a", "", False),
        ("(a)", r"\1-\g<1>", True),
        ("(?P<x>a)", r"\g<x>", True),
        ("(?x) (a) # a comment", r"\1", True),
        ("(?i)a|b", "", True),
        ("(a)", r"\2", False),
        ("(a)", r"\g<x>", False),
        ("(a)", r"\q", False),
    ],
)
def test_rules_of_replace_are_read_before_the_run(pattern: str, text: str, right: bool) -> None:
    patterns = importlib.import_module("nlpkernel_clean.components.patterns")
    made = patterns.Replace(rules=(patterns.Rule(pattern="ok"), patterns.Rule(pattern=pattern, text=text)))
    said = list(made.check_settings())
    assert [setting for setting, _ in said] == ([] if right else ["rules"])
    assert all(message.startswith("rule 2: ") for _, message in said)
