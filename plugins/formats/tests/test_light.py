from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nlpkernel_formats
from nlpkernel.components import fields_of, is_component
from nlpkernel_formats import component
from nlpkernel_formats.codes import CODES

SOURCE = Path(nlpkernel_formats.__file__).parent


def test_components_import_no_library_of_their_formats() -> None:
    program = (
        "import sys, nlpkernel_formats.component, nlpkernel_formats.codes\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'h5py', 'fastwarc', 'resiliparse', 'google_crc32c'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    raised = {
        code
        for path in SOURCE.glob("*.py")
        if path.stem != "codes"
        for code in re.findall(r'"(FMT\d{3})"', path.read_text())
    }
    assert raised == set(CODES)
    for title, text in CODES.values():
        assert title
        assert 2 <= len(text.splitlines()) <= 5


def test_every_component_makes_a_reader_and_says_what_its_settings_mean() -> None:
    made = []
    for value in vars(component).values():
        if is_component(value):
            assert all(field.facts.help for field in fields_of(value)), value
            reader = value().create_reader()
            assert reader.unit == "record"
            assert not reader.text
            made.append(value.__name__)
    assert len(made) == 7
