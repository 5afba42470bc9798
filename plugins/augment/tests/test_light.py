from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import nlpkernel_augment
from nlpkernel.components import fields_of, is_component
from nlpkernel_augment.codes import CODES
from nlpkernel_augment.component import Insert
from nlpkernel_sdk.light import brought, faults_of_codes, without_help


def test_the_components_import_nothing_heavy() -> None:
    assert not brought(["nlpkernel_augment.component", "nlpkernel_augment.codes"], {"torch", "numpy"})


def test_every_augmentation_is_offered_and_every_setting_has_help() -> None:
    points = {
        each.name: each
        for each in entry_points(group="nlpkernel.augmentation.v1")
        if each.value.startswith("nlpkernel_augment")
    }
    assert sorted(points) == ["back-translation", "delete", "insert", "swap", "synonyms", "typos"]
    for point in points.values():
        cls = point.load()
        assert is_component(cls)
        assert not without_help(cls)
        assert "strength" in {field.name for field in fields_of(cls)}


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    assert not faults_of_codes(nlpkernel_augment, CODES, least=1)


def test_the_path_of_wordnet_goes_with_its_source_alone() -> None:
    assert [name for name, _ in Insert(source="synonyms").check_settings()] == ["path"]
    assert [name for name, _ in Insert(path=Path("dict")).check_settings()] == ["path"]
    assert not list(Insert().check_settings())
