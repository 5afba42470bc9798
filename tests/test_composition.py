"""Composition by pip: fresh environments with nothing of ours but what was installed from wheels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.xdist_group("composition")

PLAN = """
name = "composed"
[train]
steps = 3
batch = 2
threads = 1
[data]
use = "text"
paths = ["words.txt"]
window = 8
validation = 0
[model]
use = "gpt"
layers = 1
heads = 2
width = 16
[optimizer]
use = "adamw"
lr = 1e-3
"""
SOME = ("nlpkernel", "nlpkernel-plugin-text", "nlpkernel-plugin-transformer", "nlpkernel-plugin-optim")


class Environment:
    """A virtual environment: what others wrote is that of this one, of ours there is nothing at first."""

    def __init__(self, folder: Path, others: Path, wheels: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        self.wheels = wheels
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "others.pth").write_text(f"{others}\n", encoding="utf-8")

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)

    def install(self, *names: str, wheels: Path | None = None) -> None:
        self.pip("install", "--quiet", "--no-index", "--no-deps", "-f", str(wheels or self.wheels), *names)

    def nlpkernel(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NLPKERNEL_CACHE": str(cwd / "cache"), "PYTHONPATH": ""}
        command = [str(self.python), "-m", "nlpkernel", *arguments]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed here, but nothing of ours."""
    folder = tmp_path_factory.mktemp("others")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "nlpkernel" not in path.name and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of all distributions."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=project.parent, check=True, capture_output=True)
    return folder


@pytest.fixture
def make(tmp_path: Path, others: Path, wheels: Path) -> Callable[..., Environment]:
    """An environment with some distributions of ours."""

    def made(names: Sequence[str]) -> Environment:
        environment = Environment(tmp_path / "env", others, wheels)
        environment.install(*names)
        return environment

    return made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a plan and its text."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    (folder / "words.txt").write_text("some words to learn, again and again " * 20, encoding="utf-8")
    return folder


def test_the_kernel_alone_says_what_a_plan_needs(make: Callable[..., Environment], work: Path) -> None:
    environment = make(["nlpkernel"])
    assert environment.nlpkernel("plugins", cwd=work).returncode == 0
    done = environment.nlpkernel("check", "plan.toml", cwd=work)
    assert done.returncode == 2
    for line, name in ((8, "text"), (13, "gpt"), (18, "adamw")):
        assert f"plan.toml:{line}:7: NK106 no installed distribution offers {name!r}" in done.stderr
    assert done.stderr.count("pip install nlpkernel-standard") == 3


def test_three_plugins_run_a_plan_and_without_one_the_plan_says_which(
    make: Callable[..., Environment], work: Path
) -> None:
    environment = make(SOME)
    done = environment.nlpkernel("run", "plan.toml", cwd=work)
    assert done.returncode == 0, done.stderr
    report = json.loads((work / "runs" / "composed" / "report.json").read_text(encoding="utf-8"))
    assert report["status"] == "finished"
    environment.pip("uninstall", "--quiet", "--yes", "nlpkernel-plugin-optim")
    done = environment.nlpkernel("run", "plan.toml", "--overwrite", cwd=work)
    assert done.returncode == 2
    assert "plan.toml:18:7" in done.stderr
    assert "pip install nlpkernel-standard" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_of_ours_together_are_in_order(
    make: Callable[..., Environment], wheels: Path, work: Path
) -> None:
    names = {path.name.partition("-")[0].replace("_", "-") for path in wheels.glob("*.whl")}
    if find_spec("ray") is None:
        # It is not among what is installed here, and its plugin says so.
        names.remove("nlpkernel-plugin-ray")
    environment = make(sorted(names))
    done = environment.nlpkernel("plugins", "doctor", cwd=work)
    assert done.returncode == 0, done.stdout + done.stderr
    done = environment.nlpkernel("run", "plan.toml", "--set", 'checkpoint={use="store"}', cwd=work)
    assert done.returncode == 0, done.stderr
    done = environment.nlpkernel("evaluate", "runs/composed", "--data", "words.txt", "--json", cwd=work)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["loss"] > 0


def test_a_plugin_of_a_newer_contract_is_named_with_its_distribution(
    make: Callable[..., Environment], work: Path, tmp_path: Path
) -> None:
    environment = make(SOME)
    environment.install("nlpkernel-plugin-strange", wheels=_strange(tmp_path / "strange"))
    (work / "plan.toml").write_text(PLAN.replace('"adamw"\nlr = 1e-3', '"strange"'), encoding="utf-8")
    done = environment.nlpkernel("check", "plan.toml", cwd=work)
    assert done.returncode == 2
    assert (
        "plan.toml:18:7: NK050 'strange' is built for version 2 of the contract for 'optimizer'"
        in done.stderr
    )
    assert "upgrade nlpkernel, or install an older nlpkernel-plugin-strange" in done.stderr


def _strange(folder: Path) -> Path:
    """A wheel of an optimizer for the next version of the slot."""
    folder.mkdir()
    files = {
        "nlpkernel_strange.py": "from nlpkernel import component\n\n@component\nclass Strange:\n    'Nothing.'\n",
        "nlpkernel_plugin_strange-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: nlpkernel-plugin-strange\n"
        "Version: 1.0\n",
        "nlpkernel_plugin_strange-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        "nlpkernel_plugin_strange-1.0.dist-info/entry_points.txt": "[nlpkernel.optimizer.v2]\n"
        "strange = nlpkernel_strange:Strange\n",
    }
    record = "nlpkernel_plugin_strange-1.0.dist-info/RECORD"
    with zipfile.ZipFile(folder / "nlpkernel_plugin_strange-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr(record, "".join(f"{name},,\n" for name in (*files, record)))
    return folder
