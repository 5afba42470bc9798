"""New plugins: for every slot and shared extension point what is written is whole, and passes its own tests."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.errors import UsageError
from nlpkernel.hookspecs import POINTS
from nlpkernel_sdk import tiny_values
from nlpkernel_sdk.installing import install
from nlpkernel_sdk.scaffold import scaffold, single_file


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin for each point, written by the command and put where Python finds it."""
    folder = tmp_path_factory.mktemp("scaffold")
    for point, facts in POINTS.items():
        kind = "--slot" if facts.slot else "--point"
        assert main(["new", "plugin", f"{point}-own", kind, point, "--into", str(folder)]) == 0
        install(folder / f"nlpkernel-plugin-{point}-own", folder / "site")
    return folder


@pytest.fixture(scope="module")
def tested(site: Path) -> dict[str, list[str]]:
    """The results of all their tests, from one process: by point, a line for each test."""
    projects = [site / f"nlpkernel-plugin-{point}-own/tests" for point in POINTS]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
    ]
    (site / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site / "site"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "-p", "no:xdist", "-c", "pytest.ini", *map(str, projects)],
        capture_output=True,
        text=True,
        cwd=site,
        env=environment,
        check=False,
    )
    lines = done.stdout.splitlines()
    results = {
        point: [
            line
            for line in lines
            if f"plugin-{point}-own/" in line and line.split()[0] in ("PASSED", "FAILED", "ERROR")
        ]
        for point in POINTS
    }
    assert any(line.startswith("nlpkernel-plugin-data-own: ") for line in lines), (
        done.stdout[-3000:] + done.stderr
    )
    return results


@pytest.mark.parametrize("point", POINTS)
def test_a_new_plugin_passes_its_own_tests(tested: dict[str, list[str]], point: str) -> None:
    lines = tested[point]
    assert [line for line in lines if not line.startswith("PASSED")] == []
    assert sum("test_component.py" in line for line in lines) >= 1
    assert sum("test_conformance.py" in line for line in lines) > 40


@pytest.mark.parametrize("point", POINTS)
def test_a_new_plugin_is_whole(site: Path, point: str) -> None:
    folder = site / f"nlpkernel-plugin-{point}-own"
    package = f"src/nlpkernel_{point}_own"
    for name in ("pyproject.toml", "README.md", ".github/workflows/ci.yml", f"{package}/component.py"):
        assert (folder / name).read_text(encoding="utf-8").strip()
    assert (folder / package / "py.typed").is_file()
    left = [
        path for path in folder.rglob("*") if path.is_file() and re.search(r"@\w+@", path.read_text("utf-8"))
    ]
    assert left == []


@pytest.mark.parametrize("point", POINTS)
def test_a_single_file_holds_the_component_and_what_it_works_with(tmp_path: Path, point: str) -> None:
    ((name, text),) = single_file("mine", point).files.items()
    assert name == "mine.py"
    compile(text, name, "exec")
    classes = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    assert "Mine" in classes
    assert "nlpkernel_mine" not in text
    namespace: dict[str, object] = {"__name__": "mine_of_a_test"}
    module = type(sys)("mine_of_a_test")
    sys.modules["mine_of_a_test"] = module
    try:
        exec(compile(text, name, "exec"), namespace)
    finally:
        del sys.modules["mine_of_a_test"]


def test_a_single_file_trains(tmp_path: Path) -> None:
    assert (
        main(["new", "plugin", "mine", "--slot", "optimizer", "--single-file", "--into", str(tmp_path)]) == 0
    )
    values = tiny_values(optimizer={"use": "./mine.py:Mine", "lr": 0.01})
    report = nlpkernel.run(nlpkernel.Plan.of(values, base=tmp_path), runs_folder=tmp_path / "runs")
    assert report.status == "finished"


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["new", "plugin", "mine", "--point", "schedule", "--into", str(tmp_path)]
    assert main(words) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main(words) == 2
    assert "SDK003" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["Mine", "my_own", "1st", "a--b", "-a", "ä", "class", ""])
def test_a_name_that_no_plan_could_write_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="SDK002"):
        scaffold(name, "optimizer")


def test_an_unknown_point_is_named_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"SDK001.*'optimiser'.*optimizer"):
        scaffold("mine", "optimiser")


def test_a_name_that_a_class_of_the_scaffold_has_is_refused() -> None:
    with pytest.raises(UsageError, match="SDK002"):
        scaffold("sign-rule", "optimizer")
