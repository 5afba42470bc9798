from __future__ import annotations

from importlib.metadata import entry_points

import nlpkernel_hf
from nlpkernel.components import is_component
from nlpkernel_hf.codes import CODES
from nlpkernel_sdk.light import brought, faults_of_codes, without_help


def test_the_component_imports_nothing_heavy() -> None:
    modules = ["nlpkernel_hf.component", "nlpkernel_hf.codes"]
    assert not brought(modules, {"torch", "numpy", "transformers", "safetensors"})


def test_the_component_is_offered_and_every_setting_has_help() -> None:
    (point,) = (
        each for each in entry_points(group="nlpkernel.model.v1") if each.value.startswith("nlpkernel_hf")
    )
    assert point.name == "hf"
    cls = point.load()
    assert is_component(cls)
    assert not without_help(cls)


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    assert not faults_of_codes(nlpkernel_hf, CODES, least=1)
