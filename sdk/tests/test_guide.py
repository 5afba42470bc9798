"""The author's guide: its steps in an empty folder, its optimizer, its table."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nlpkernel.cli import main
from nlpkernel.plugins.catalog import Catalog
from nlpkernel.plugins.scan import scan
from nlpkernel_sdk.conform.runner import conform
from nlpkernel_sdk.conform.subject import Config, Subject
from nlpkernel_sdk.docs import points
from nlpkernel_sdk.installing import install
from nlpkernel_sdk.scaffold import scaffold, write

GUIDE = (Path(__file__).parents[2] / "docs/authoring.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


def test_the_first_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [
        line.removeprefix("$ nlpkernel ").split()
        for block in blocks("console")
        for line in block.splitlines()
    ]
    assert [main(command) for command in commands] == [0, 0]
    (tmp_path / "plan.toml").write_text(blocks("toml")[0], encoding="utf-8")
    assert main(["check", "plan.toml"]) == 0
    assert main(["run", "plan.toml"]) == 0


def test_an_optimizer_of_twelve_own_lines_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in blocks("python") if "class Momentum" in block]
    own = [line for line in block.splitlines() if line.strip()]
    assert len(own) <= 12
    project = tmp_path / "project"
    write(scaffold("momentum", "optimizer"), project, whole=True)
    package = project / "src/nlpkernel_momentum"
    (package / "rule.py").unlink()
    (package / "component.py").write_text('"""The component."""\n\n' + block, encoding="utf-8")
    install(project, tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    verdict = conform(Subject("nlpkernel-plugin-momentum", Config.read(project), Catalog(scan())))
    assert [outcome.case for outcome in verdict.outcomes if outcome.status == "failed"] == []
    assert verdict.ran > 55


def test_the_table_of_contracts_is_that_of_the_code() -> None:
    assert points() in GUIDE


def test_the_table_for_the_kit_is_one_that_it_takes(tmp_path: Path) -> None:
    (block,) = [block for block in blocks("toml") if "tool.nlpkernel" in block]
    (tmp_path / "pyproject.toml").write_text(block, encoding="utf-8")
    config = Config.read(tmp_path)
    assert config.at_least == 60
    assert list(config.known) == ["behaviour.resume[optimizer.mine]"]
