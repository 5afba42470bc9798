from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import nlpkernel_optim
from nlpkernel_optim.codes import CODES

SOURCE = Path(nlpkernel_optim.__file__).parent


def test_components_and_schedules_do_not_import_torch() -> None:
    program = (
        "import sys, nlpkernel_optim.component, nlpkernel_optim.schedules, nlpkernel_optim.codes\n"
        "heavy = {'torch', 'numpy', 'rich', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    used = {
        code
        for path in SOURCE.glob("*.py")
        for code in re.findall(r'"(OPT\d{3})",\n|"(OPT\d{3})", f?"', path.read_text())
    }
    raised = {code for pair in used for code in pair if code}
    assert raised == set(CODES)
    for title, text in CODES.values():
        assert title
        assert 2 <= len(text.splitlines()) <= 5


def test_every_setting_has_help() -> None:
    from nlpkernel.components import fields_of, is_component

    for name in ("component", "schedules"):
        module = importlib.import_module(f"nlpkernel_optim.{name}")
        for value in vars(module).values():
            if is_component(value):
                assert all(field.facts.help for field in fields_of(value)), value
