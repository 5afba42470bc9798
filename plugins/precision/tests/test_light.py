from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nlpkernel_precision
from nlpkernel.components import fields_of, is_component
from nlpkernel_precision import component
from nlpkernel_precision.codes import CODES


def test_components_do_not_import_torch() -> None:
    program = (
        "import sys, nlpkernel_precision.component, nlpkernel_precision.codes, nlpkernel_precision.scale\n"
        "heavy = {'torch', 'numpy', 'rich', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    folder = Path(nlpkernel_precision.__file__).parent
    sources = [path.read_text() for path in folder.glob("*.py") if path.name != "codes.py"]
    assert set(re.findall(r"\bPRC\d{3}\b", "".join(re.findall(r'"PRC\d{3}"', "".join(sources))))) == set(
        CODES
    )
    for title, text in CODES.values():
        assert title
        assert 2 <= len(text.splitlines()) <= 5


def test_every_setting_has_help() -> None:
    for value in vars(component).values():
        if is_component(value):
            assert all(field.facts.help for field in fields_of(value)), value
