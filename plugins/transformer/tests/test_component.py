"""Settings that do not go together, what is light, and the codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from nlpkernel.components import PRESETS, fields_of
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.data import DataInfo, SplitInfo
from nlpkernel_transformer.codes import CODES
from nlpkernel_transformer.component import Gpt, Llama


@pytest.mark.parametrize(
    ("name", "changes", "setting", "message"),
    [
        ("gpt", {"heads": 3}, "heads", "width is 128 and does not divide into 3 heads"),
        ("llama", {"width": 36, "kv_heads": 4}, "heads", "even head width, and 36 over 4 heads gives 9"),
        ("llama", {"kv_heads": 3}, "kv_heads", "4 heads do not divide into 3 groups"),
        ("gpt", {"kv_heads": 8}, "kv_heads", "4 heads do not divide into 8 groups"),
        ("gpt", {"checkpointing": 5}, "checkpointing", "checkpointing is 5, and there are only 4 blocks"),
    ],
)
def test_settings_that_do_not_go_together_are_said_at_their_setting(
    component: Any, name: str, changes: Mapping[str, Any], setting: str, message: str
) -> None:
    ((at, said),) = component(name, **changes).check_settings()
    assert at == setting
    assert message in said


@pytest.mark.parametrize("cls", [Gpt, Llama])
def test_every_preset_goes_together_and_names_settings_that_exist(component: Any, cls: type) -> None:
    names = {field.name for field in fields_of(cls)}
    for preset, values in getattr(cls, PRESETS).items():
        assert set(values) < names
        assert not list(component(cls.__name__.lower(), preset).check_settings())


@pytest.mark.parametrize("cls", [Gpt, Llama])
def test_every_setting_has_help_and_a_type_that_resolves(cls: type) -> None:
    fields = fields_of(cls)
    assert all(field.facts.help for field in fields)
    # The preset fills what has no default.
    required = {field.name for field in fields if field.required}
    assert all(required <= set(preset) for preset in getattr(cls, PRESETS).values())


def test_the_hidden_width_is_derived_where_it_is_left_out(component: Any) -> None:
    assert component("gpt").shape(10, 10).hidden == 512
    assert component("llama").shape(10, 10).hidden == 384
    assert component("llama", width=96).shape(10, 10).hidden == 256
    assert component("llama", hidden=100).shape(10, 10).hidden == 100


def _info(window: int) -> DataInfo:
    return DataInfo(
        task="lm", vocabulary=50, window=window, fingerprint="", splits={"train": SplitInfo(samples=1)}
    )


def test_the_context_is_the_window_of_the_data_or_larger(component: Any) -> None:
    assert component("gpt").create_model(_info(24)).module.context == 24
    assert component("gpt", context=32).create_model(_info(24)).module.context == 32
    with pytest.raises(PlanError, match="TRF001 context is 16, and the data has rows of 24 tokens"):
        component("gpt", context=16).create_model(_info(24))


def test_components_commands_and_codes_are_light() -> None:
    code = (
        "import sys, argparse;"
        "import nlpkernel_transformer.component, nlpkernel_transformer.command, nlpkernel_transformer.codes;"
        "from nlpkernel.components import PRESETS;"
        "from nlpkernel.hookspecs.everywhere import Facts;"
        "C = nlpkernel_transformer.component.Llama;"
        "C(**getattr(C, PRESETS)['8b']).estimate(Facts(vocabulary=9, window=9));"
        "nlpkernel_transformer.command.arguments(argparse.ArgumentParser());"
        "print(sorted({'torch', 'numpy', 'rich', 'zmq', 'cupy', 'tokenizers'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_codes_have_a_title_and_say_what_to_do() -> None:
    assert list(CODES) == sorted(CODES)
    for code, (title, text) in CODES.items():
        assert code.startswith("TRF")
        assert title
        assert len(text.split(". ")) >= 2 or "\n" in text
