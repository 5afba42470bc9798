"""Each distribution builds a wheel that holds its package and is typed; the kernel's works alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DISTRIBUTIONS = sorted(
    path.parent for path in [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
)


def build(folder: Path, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda path: path.name)
def test_a_wheel_holds_its_typed_package_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(folder, tmp_path)) as wheel:
        names = wheel.namelist()
    (package,) = {path.name for path in (folder / "src").iterdir()}
    assert f"{package}/py.typed" in names
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {package}


def test_the_kernel_lists_and_helps_from_its_wheel_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(build(ROOT / "kernel", tmp_path)) as wheel:
        wheel.extractall(tmp_path / "site")
    # -S: no site-packages, so neither torch nor attrs nor another distribution of ours is there.
    path = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})"
    code = f"{path}; from nlpkernel.cli import main; sys.exit(main())"
    for arguments in (["--help"], ["plugins"]):
        done = subprocess.run(
            [sys.executable, "-S", "-I", "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "nlpkernel" in done.stdout
