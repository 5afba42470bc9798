from __future__ import annotations

from importlib.metadata import entry_points

import nlpkernel_tasks
from nlpkernel.components import is_component
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_sdk.light import brought, faults_of_codes, without_help
from nlpkernel_tasks.codes import CODES
from nlpkernel_tasks.component import Classification, Mlm


def test_the_components_import_nothing_heavy() -> None:
    commands = [f"nlpkernel_tasks.commands.{name}" for name in ("compare", "evaluate", "predict")]
    assert not brought(["nlpkernel_tasks.component", "nlpkernel_tasks.codes", *commands], {"torch", "numpy"})


def test_every_task_is_offered_and_every_setting_has_help() -> None:
    points = {
        each.name: each
        for each in entry_points(group="nlpkernel.task.v1")
        if each.value.startswith("nlpkernel_tasks")
    }
    assert sorted(points) == ["classification", "image-text", "mlm", "pairs", "seq2seq", "tokens"]
    for name, point in points.items():
        cls = point.load()
        assert is_component(cls)
        assert not without_help(cls)
        assert cls().estimate(Facts()) == Facts(task=name)


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    assert not faults_of_codes(nlpkernel_tasks, CODES, least=1)


def test_shares_are_no_more_than_there_is() -> None:
    assert [name for name, _ in Mlm(masked=0.9, replaced=0.2).check_settings()] == ["replaced"]
    assert not list(Mlm(masked=0.9, replaced=0.1).check_settings())
    assert Classification().main == "accuracy"
