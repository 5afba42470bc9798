"""What starting imports, in clean child processes with all that is installed. The milliseconds are measured by
`tests/benchmarks/startup.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def _benchmark() -> ModuleType:
    path = Path(__file__).parent / "benchmarks" / "startup.py"
    spec = importlib.util.spec_from_file_location("startup_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


startup = _benchmark()


def extra(tmp_path: Path, *arguments: str) -> set[str]:
    """What a command imports beyond bare Python."""
    modules: set[str] = startup.imported(startup.command(*arguments), tmp_path)
    assert "nlpkernel.cli" in modules
    return modules.difference(startup.imported(startup.BARE, tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["plugins"], ["plugins", "list"], ["plugins", "--help"]],
    ids=" ".join,
)
def test_help_and_the_list_of_plugins_import_nothing_dear(tmp_path: Path, arguments: list[str]) -> None:
    modules = extra(tmp_path, *arguments)
    assert modules.isdisjoint(startup.HEAVY)
    assert modules.isdisjoint(startup.DEAR)


def test_help_and_the_list_of_plugins_import_no_plugin(tmp_path: Path) -> None:
    from nlpkernel.plugins.scan import scan

    packages = {offer.target.partition(":")[0].partition(".")[0] for offer in scan()} - {"nlpkernel"}
    for arguments in (["--help"], ["plugins"]):
        assert extra(tmp_path, *arguments).isdisjoint(packages)


def test_the_list_of_plugins_in_json_imports_json_and_nothing_heavier(tmp_path: Path) -> None:
    modules = extra(tmp_path, "plugins", "--json")
    assert "json" in modules
    assert modules.isdisjoint(startup.HEAVY)
    assert modules.isdisjoint(set(startup.DEAR) - {"json"})


def test_check_of_a_right_plan_imports_nothing_heavy(tmp_path: Path) -> None:
    plan = startup.starter(tmp_path)
    assert plan is not None, "an installed plugin brings a starter plan"
    modules = extra(tmp_path, "check", plan)
    assert "nlpkernel.plan.plan" in modules
    assert modules.isdisjoint(startup.HEAVY)


def test_a_heavy_import_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("", "utf-8")
    seen = startup.imported(["-c", "import numpy, email.message"], tmp_path)
    assert {"numpy", "email.message"} <= seen
    with pytest.raises(RuntimeError, match="exit code 3"):
        startup.imported(["-c", "raise SystemExit(3)"], tmp_path)
