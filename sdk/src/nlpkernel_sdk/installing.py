"""A working tree made importable as an installed distribution, without pip: for tests of plugins."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def install(project: Path, site: Path) -> Path:
    """Copy the packages of a project into the folder `site` and write its metadata beside them, from pyproject.toml;
    gives the metadata folder. The folder has to be on `sys.path` for others to see it."""
    table: Mapping[str, Any] = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    site.mkdir(parents=True, exist_ok=True)
    for package in sorted((project / "src").iterdir()):
        if package.is_dir():
            shutil.copytree(package, site / package.name, dirs_exist_ok=True)
    name, version = table["name"], table["version"]
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    readme = project / table.get("readme", "README.md")
    body = readme.read_text("utf-8") if readme.is_file() else ""
    (folder / "METADATA").write_text("\n".join(_metadata(table)) + "\n\n" + body, encoding="utf-8")
    (folder / "entry_points.txt").write_text("\n".join(_entries(table)) + "\n", encoding="utf-8")
    return folder


def _metadata(table: Mapping[str, Any]) -> Iterator[str]:
    yield "Metadata-Version: 2.4"
    yield f"Name: {table['name']}"
    yield f"Version: {table['version']}"
    for key, field in (
        ("description", "Summary"),
        ("license", "License-Expression"),
        ("requires-python", "Requires-Python"),
    ):
        if key in table:
            yield f"{field}: {table[key]}"
    for requirement in table.get("dependencies", ()):
        yield f"Requires-Dist: {requirement}"


def _entries(table: Mapping[str, Any]) -> Iterator[str]:
    for group, entries in table.get("entry-points", {}).items():
        yield f"[{group}]"
        for name, target in entries.items():
            yield f"{name} = {target}"
