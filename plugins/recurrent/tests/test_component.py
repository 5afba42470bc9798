"""Which task, settings that do not go together, what is light, and the codes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import nlpkernel_recurrent
from nlpkernel.components import PRESETS, fields_of
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.data import DataInfo
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_recurrent.codes import CODES
from nlpkernel_recurrent.component import Recurrent
from nlpkernel_sdk.light import brought, faults_of_codes, without_help


def _info(task: str) -> DataInfo:
    return DataInfo(task=task, vocabulary=50, window=24, fingerprint="", splits={}, labels=("a", "b"))


def test_the_component_imports_nothing_heavy() -> None:
    assert not brought(["nlpkernel_recurrent.component", "nlpkernel_recurrent.codes"], {"torch", "numpy"})


def test_every_code_is_explained_and_every_setting_has_help() -> None:
    assert not faults_of_codes(nlpkernel_recurrent, CODES)
    assert not without_help(Recurrent)


def test_presets_name_settings_and_go_together(component: Any) -> None:
    names = {field.name for field in fields_of(Recurrent)}
    for preset, values in getattr(Recurrent, PRESETS).items():
        assert set(values) < names
        assert not list(component(preset).check_settings())


def test_the_head_is_what_the_task_needs(component: Any) -> None:
    def made(task: str) -> Any:
        with torch.device("meta"):
            return component().create_model(_info(task)).module

    assert made("lm").head.out_features == 50
    assert made("lm").layers[0].back is None
    assert made("lm").context == 24
    for task in ("classification", "tokens"):
        assert made(task).head.out_features == 2
        assert made(task).layers[0].back is not None


@pytest.mark.parametrize("task", ["mlm", "seq2seq", "pairs"])
def test_a_task_without_a_head_is_refused(component: Any, task: str) -> None:
    with pytest.raises(PlanError, match=f"RCR001 a recurrent network has no head for the task '{task}'"):
        component().create_model(_info(task))
    assert "will stop" in component().estimate(Facts(task=task)).notes[0]


def test_a_context_that_is_too_short_is_refused_and_noted(component: Any) -> None:
    with pytest.raises(PlanError, match="RCR002 context is 8, and the data has rows of 24 tokens"):
        component(context=8).create_model(_info("lm"))
    assert "will stop" in component(context=8).estimate(Facts(vocabulary=9, window=24)).notes[0]


def test_two_directions_need_an_even_width(component: Any) -> None:
    assert [setting for setting, _ in component(width=5).check_settings()] == ["width"]
    assert not list(component(width=5, bidirectional=False).check_settings())
