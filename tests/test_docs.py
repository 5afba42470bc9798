"""The documentation is held to the code: examples run, reference pages are those that the code makes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import nlpkernel
from nlpkernel.cli import COMMANDS, main
from nlpkernel.plugins.scan import scan
from nlpkernel_sdk import tiny_values
from nlpkernel_sdk.docs import pages

ROOT = Path(__file__).parent.parent
PROSE = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("*/README.md"),
    *ROOT.glob("plugins/*/README.md"),
]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def test_the_plan_in_the_readme_has_no_mistakes(tmp_path: Path) -> None:
    plans = [block for block in blocks(ROOT / "README.md", "toml") if "[data]" in block]
    assert len(plans) == 1
    path = tmp_path / "plan.toml"
    path.write_text(plans[0], encoding="utf-8")
    assert nlpkernel.Plan.load(path).name == "first"


def test_the_plugin_in_the_readme_trains(tmp_path: Path) -> None:
    (block,) = [block for block in blocks(ROOT / "README.md", "python") if "@component" in block]
    (tmp_path / "nadam.py").write_text(block, encoding="utf-8")
    assert len(block.strip().splitlines()) < 20
    values = tiny_values(optimizer={"use": "./nadam.py:NAdam", "lr": 2e-3}, train={"steps": 20})
    report = nlpkernel.run(nlpkernel.Plan.of(values, base=tmp_path), runs_folder=tmp_path / "runs")
    assert report.status == "finished"


def test_the_plugin_in_the_authors_guide_rings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [block for block in blocks(ROOT / "docs/authoring.md", "python") if "class Bell" in block]
    (tmp_path / "bell.py").write_text(block, encoding="utf-8")
    values = tiny_values(monitor=[{"use": "./bell.py:Bell", "times": 2}])
    nlpkernel.run(nlpkernel.Plan.of(values, base=tmp_path), runs_folder=tmp_path / "runs")
    assert "\a\a" in capsys.readouterr().out


def test_the_test_in_the_authors_guide_passes() -> None:
    (block,) = [block for block in blocks(ROOT / "docs/authoring.md", "python") if "tiny_plan" in block]
    exec(compile(block, "authoring.md", "exec"), {})


def test_the_commands_of_the_guide_to_resuming_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks(ROOT / "docs/resuming.md", "console")
    monkeypatch.chdir(tmp_path)
    train = {"steps": 8, "batch": 8}
    checkpoint = {"use": "store", "every": 4, "fsync": False}
    plan = nlpkernel.Plan.of(tiny_values(name="first", train=train, checkpoint=checkpoint))
    (tmp_path / "plan.toml").write_text(plan.text(), encoding="utf-8")
    commands = re.findall(r"^\$ nlpkernel ([^#\n]+)(# exit code (\d))?", block, re.MULTILINE)
    assert len(commands) == len(block.splitlines())
    for command, _, code in commands:
        assert main(command.split()) == int(code or 0), command


@pytest.mark.parametrize("number", range(4))
def test_the_plans_of_the_guide_to_data_have_no_mistake(tmp_path: Path, number: int) -> None:
    rest = tiny_values(name="guide")
    del rest["data"]
    data = tomllib.loads(blocks(ROOT / "docs/data.md", "toml")[number])
    nlpkernel.Plan.of({**rest, **data}, base=tmp_path).compose()


def test_the_stage_of_the_guide_to_data_drops_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks(ROOT / "docs/data.md", "python")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NLPKERNEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "stages.py").write_text(block, encoding="utf-8")
    (tmp_path / "a.txt").write_text("a draft of it\nthe text\nanother\n", encoding="utf-8")
    data = {
        "use": "text",
        "paths": ["a.txt"],
        "format": {"use": "text", "documents": "line"},
        "stages": [{"use": "./stages.py:Without", "word": "draft"}],
    }
    plan = nlpkernel.Plan.of({**tiny_values(name="first"), "data": data}, base=tmp_path)
    (tmp_path / "plan.toml").write_text(plan.text(), encoding="utf-8")
    assert main(["data", "plan.toml"]) == 0
    assert "1 has the word draft" in capsys.readouterr().out


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_toml_block_is_toml(path: Path) -> None:
    for block in blocks(path, "toml"):
        tomllib.loads(block)


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path}: {target}"


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_mentioned_exists(path: Path) -> None:
    # Ray is not installed everywhere.
    known = {*COMMANDS, "ray", *(offer.name for offer in scan() if offer.point == "command")}
    for command in re.findall(r"`nlpkernel ([a-z-]+)", path.read_text(encoding="utf-8")):
        assert command in known, f"{path}: nlpkernel {command}"


@pytest.mark.parametrize("name", ["plan.md", "hooks.md", "events.md", "errors.md"])
def test_the_reference_is_what_the_code_says(name: str) -> None:
    committed = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert committed == pages()[name], "run `make docs`"
