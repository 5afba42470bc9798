from __future__ import annotations

import nlpkernel_formats
from nlpkernel.components import is_component
from nlpkernel_formats import component
from nlpkernel_formats.codes import CODES
from nlpkernel_sdk.light import brought, faults_of_codes, without_help


def test_components_import_no_library_of_their_formats() -> None:
    assert not brought(
        ["nlpkernel_formats.component", "nlpkernel_formats.codes"],
        {"torch", "numpy", "pyarrow", "h5py", "fastwarc", "resiliparse", "google_crc32c"},
    )


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    assert not faults_of_codes(nlpkernel_formats, CODES)


def test_every_component_makes_a_reader_and_says_what_its_settings_mean() -> None:
    made = []
    for value in vars(component).values():
        if is_component(value):
            assert not without_help(value)
            reader = value().create_reader()
            assert reader.unit == "record"
            assert not reader.text
            made.append(value.__name__)
    assert len(made) == 7
