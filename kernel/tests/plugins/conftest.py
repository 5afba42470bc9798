"""Installed distributions made of nothing but files, and child processes that see these and no others."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

#: What the child processes get of the real environment: the kernel and what it needs.
PACKAGES = (
    "nlpkernel",
    "attr",
    "attrs",
    "cattrs",
    "filelock",
    "msgpack",
    "packaging",
    "pluggy",
    "rich",
    "typing_extensions",
)
DISTRIBUTIONS = ("nlpkernel", "attrs", "cattrs", "filelock", "msgpack", "packaging", "pluggy", "rich")

COMPONENT = """
from nlpkernel import component, hookimpl, setting


@component
class {name}:
    '''{name}: a component that a test made.'''

    rate: float = setting(gt=0, help="how fast")

    @hookimpl
    def open_store(self, run, folder): ...
"""


class Site:
    """A folder on the path of child processes, to lay distributions in."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.folder = folder
        self.base = base
        folder.mkdir(parents=True, exist_ok=True)

    def lay(
        self,
        name: str,
        entry_points: Mapping[str, Mapping[str, str]] | str,
        *,
        modules: Mapping[str, str] | None = None,
        release: str = "1.0",
        requires: tuple[str, ...] = (),
    ) -> Path:
        """Make a distribution; give its metadata folder. Entry points: text, or groups of names to targets."""
        location = self.folder / f"{name.replace('-', '_')}-{release}.dist-info"
        location.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {release}"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        (location / "METADATA").write_text("\n".join([*lines, "", "What it is.", ""]), encoding="utf-8")
        if not isinstance(entry_points, str):
            entry_points = "\n".join(
                f"[{group}]\n" + "".join(f"{key} = {target}\n" for key, target in entries.items())
                for group, entries in entry_points.items()
            )
        (location / "entry_points.txt").write_text(entry_points, encoding="utf-8")
        for module, content in (modules or {}).items():
            path = self.folder / f"{module.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return location

    @property
    def paths(self) -> list[str]:
        """What is on `sys.path` of a child process, but for the standard library."""
        return [str(self.folder), str(self.base)]

    def run(self, *arguments: str, check: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run `python -m nlpkernel` with this site alone, and compare the exit code."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment["PYTHONPATH"] = os.pathsep.join(self.paths)
        done = subprocess.run(
            [sys.executable, "-S", "-m", "nlpkernel", *arguments],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert check is None or done.returncode == check, done.stdout + done.stderr
        return done


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel and what it needs, without anything else that is installed beside it."""
    folder = tmp_path_factory.mktemp("base")
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        source = source.parent if spec.submodule_search_locations else source
        (folder / source.name).symlink_to(source)
    for name in DISTRIBUTIONS:
        source = Path(str(importlib.metadata.distribution(name)._path))  # type: ignore[attr-defined]
        (folder / source.name).symlink_to(source)
    return folder


@pytest.fixture
def site(tmp_path: Path, base: Path) -> Site:
    """An empty folder for distributions."""
    return Site(tmp_path / "site", base)
