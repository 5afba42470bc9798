"""The questions that tests of distributions ask, asked of packages that get them wrong."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from nlpkernel import component, setting
from nlpkernel_sdk.light import brought, faults_of_codes, without_help


def test_what_comes_along_is_named() -> None:
    assert brought(["json"], {"decimal", "torch"}) == set()
    assert brought(["statistics"], {"decimal", "torch"}) == {"decimal"}
    with pytest.raises(subprocess.CalledProcessError):
        brought(["there_is_no_such_module"], ())


def test_settings_without_help_are_named() -> None:
    @component
    class Half:
        """Some say what they are."""

        told: int = setting(default=1, help="a number")
        untold: int = 2

    assert without_help(Half) == ["untold"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "some_package_of_a_test").mkdir()
    (tmp_path / "some_package_of_a_test" / "__init__.py").write_text(
        '"""ABC004, unquoted."""\nUSED = "ABC001", "ABC002"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("some_package_of_a_test")


def test_codes_are_used_and_explained(package: ModuleType) -> None:
    whole = ("a title", "two lines\nof text")
    assert faults_of_codes(package, {"ABC001": whole, "ABC002": whole}) == []
    assert faults_of_codes(package, {"ABC001": whole, "ABC003": ("", "one line")}) == [
        "ABC002 is used and not explained",
        "ABC003 is explained and not used",
        "ABC003 needs a title and 2 to five lines of text",
    ]
    assert faults_of_codes(package, {"ABC001": whole, "ABC002": ("short", "one line")}, least=1) == []
