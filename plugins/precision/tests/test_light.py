from __future__ import annotations

import nlpkernel_precision
from nlpkernel.components import is_component
from nlpkernel_precision import component
from nlpkernel_precision.codes import CODES
from nlpkernel_sdk.light import brought, faults_of_codes, without_help


def test_components_do_not_import_torch() -> None:
    assert not brought(
        ["nlpkernel_precision.component", "nlpkernel_precision.codes", "nlpkernel_precision.scale"],
        {"torch", "numpy", "rich", "tokenizers"},
    )


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    assert not faults_of_codes(nlpkernel_precision, CODES)


def test_every_setting_has_help() -> None:
    for value in vars(component).values():
        if is_component(value):
            assert not without_help(value)
