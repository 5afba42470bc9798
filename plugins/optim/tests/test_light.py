from __future__ import annotations

import importlib

import nlpkernel_optim
from nlpkernel_optim.codes import CODES
from nlpkernel_sdk.light import brought, faults_of_codes, without_help


def test_components_and_schedules_do_not_import_torch() -> None:
    assert not brought(
        ["nlpkernel_optim.component", "nlpkernel_optim.schedules", "nlpkernel_optim.codes"],
        {"torch", "numpy", "rich", "tokenizers"},
    )


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    assert not faults_of_codes(nlpkernel_optim, CODES)


def test_every_setting_has_help() -> None:
    from nlpkernel.components import is_component

    for name in ("component", "schedules"):
        module = importlib.import_module(f"nlpkernel_optim.{name}")
        for value in vars(module).values():
            if is_component(value):
                assert not without_help(value)
