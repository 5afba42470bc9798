from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import nlpkernel_augment
from nlpkernel.components import fields_of, is_component
from nlpkernel_augment.codes import CODES
from nlpkernel_augment.component import Insert

SOURCE = Path(nlpkernel_augment.__file__).parent


def test_the_components_import_nothing_heavy() -> None:
    program = (
        "import sys, nlpkernel_augment.component, nlpkernel_augment.codes\n"
        "heavy = {'torch', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_augmentation_is_offered_and_every_setting_has_help() -> None:
    points = {
        each.name: each
        for each in entry_points(group="nlpkernel.augmentation.v1")
        if each.value.startswith("nlpkernel_augment")
    }
    assert sorted(points) == ["delete", "insert", "swap", "synonyms", "typos"]
    for point in points.values():
        cls = point.load()
        assert is_component(cls)
        assert all(field.facts.help for field in fields_of(cls)), cls
        assert "strength" in {field.name for field in fields_of(cls)}


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    used = {
        code
        for path in SOURCE.rglob("*.py")
        if path.name != "codes.py"
        for code in re.findall(r"AUG\d{3}", path.read_text())
    }
    assert used == set(CODES)
    for title, text in CODES.values():
        assert title
        assert 1 <= len(text.splitlines()) <= 5


def test_the_path_of_wordnet_goes_with_its_source_alone() -> None:
    assert [name for name, _ in Insert(source="synonyms").check_settings()] == ["path"]
    assert [name for name, _ in Insert(path=Path("dict")).check_settings()] == ["path"]
    assert not list(Insert().check_settings())
