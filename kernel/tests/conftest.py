"""Plans of components that lie in local files, and distributions made of nothing but files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent, indent

import pytest

from nlpkernel.errors import NlpkernelError, Problem
from nlpkernel.plan import Plan

HEAD = """
from __future__ import annotations
from pathlib import Path
from typing import Any, Literal
from nlpkernel import component, extension, hookimpl, setting, settings
"""

#: Settings of every kind, for a component `own`.
ALL_KINDS = """
lr: float = setting(gt=0, le=10, help="peak learning rate")
count: int = setting(default=3, ge=1, unit="count")
size: int = setting(default=0, unit="bytes")
wait: float = setting(default=0.0, unit="seconds")
seconds: int = setting(default=1, unit="seconds")
text: str = setting(default="abc", min_length=2)
flag: bool = setting(default=False)
way: Literal["up", "down"] = setting(default="up")
level: Literal[1, 2] = setting(default=1)
pair: tuple[float, float] = setting(default=(1, 2), ge=0)
many: tuple[int, ...] = setting(default=())
some: list[int] = setting(default=[], le=9)
names: list[str] = setting(default=["x"], min_length=1)
table: dict[str, float] = setting(factory=dict)
where: Path | None = setting(default=None)
mixed: Literal["auto"] | int = setting(default="auto")
either: int | list[int] | None = setting(default=None, ge=1)
anything: Any = setting(default=None)
"""

#: A data, a model and an optimizer that say nothing and can do nothing: enough to check a plan.
PARTS = """
@component
class Data:
    '''Data of a test.'''

    @hookimpl
    def open_data(self): ...

    @hookimpl
    def open_codec(self): ...


@component
class Model:
    '''A model of a test.'''

    transform: Any = extension("transform", many=True, help="changes")

    @hookimpl
    def create_model(self): ...


@component
class Optimizer:
    '''An optimizer of a test.'''

    lr: float = setting(default=0.1, gt=0, help="peak learning rate")
    schedule: Any = extension("schedule", default=None, help="the rate over the run")

    @hookimpl
    def create_optimizer(self): ...
"""


class Shop:
    """A folder in which a test writes components and plans."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("parts.py", HEAD + PARTS)

    def write(self, name: str, text: str) -> Path:
        """A file of the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def values(self, **sections: object) -> dict[str, object]:
        """A plan of the parts as plain values; None takes a section away."""
        values: dict[str, object] = {
            "name": "test",
            "train": {"steps": 1},
            "data": {"use": "./parts.py:Data"},
            "model": {"use": "./parts.py:Model"},
            "optimizer": {"use": "./parts.py:Optimizer"},
            **sections,
        }
        return {key: value for key, value in values.items() if value is not None}

    def plan(self, text: str, name: str = "plan.toml", *, without: tuple[str, ...] = ()) -> Path:
        """A plan's file: `text`, and what every plan needs as far as `text` does not have it."""
        needed = {
            "train": "steps = 1",
            **{part: f'use = "./parts.py:{part.title()}"' for part in PARTS_OF_ALL},
        }
        more = "".join(
            f"[{section}]\n{line}\n"
            for section, line in needed.items()
            if f"[{section}]" not in text and section not in without
        )
        return self.write(name, f"{text}\n{more}")

    def own(self, fields: str, *, methods: str = "", before: str = "", decorator: str = "@component") -> None:
        """Write `own.py` with an optimizer `Own` of these fields."""
        hooks = "@hookimpl\ndef create_optimizer(self): ...\n"
        body = indent(f"{dedent(fields)}\n{hooks}\n{dedent(methods)}", "    ")
        self.write(
            "own.py", f"{HEAD}{dedent(before)}\n{decorator}\nclass Own:\n    '''An own one.'''\n{body}\n"
        )

    def load(self, table: str = "", *overrides: str) -> Plan:
        """The plan whose optimizer is `Own` with this table."""
        return Plan.load(self.plan(f'[optimizer]\nuse = "./own.py:Own"\n{dedent(table)}'), overrides)

    def made(self, table: str = "", *overrides: str) -> object:
        """The component `Own` that comes of a table."""
        return self.load(table, *overrides).compose().slot("optimizer").component

    def refused(self, table: str = "", *overrides: str) -> list[Problem]:
        """What is wrong with a table of `Own`, each problem with the file's own name only."""
        with pytest.raises(NlpkernelError) as caught:
            self.load(table, *overrides)
        return list(caught.value.problems)

    def lines(self, table: str = "", *overrides: str) -> list[str]:
        """`refused` as a user reads it, without the folder."""
        return [str(problem).replace(f"{self.folder}/", "") for problem in self.refused(table, *overrides)]

    def child(
        self, *arguments: str, check: int | None = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """`python -m nlpkernel` in this folder, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "nlpkernel", *arguments],
            env={**os.environ, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
        )
        assert check is None or done.returncode == check, done.stdout + done.stderr
        return done


PARTS_OF_ALL = ("data", "model", "optimizer")


def lay(
    site: Path,
    distribution: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    release: str = "1.0",
) -> None:
    """Make an installed distribution of files in the folder `site`."""
    location = site / f"{distribution.replace('-', '_')}-{release}.dist-info"
    location.mkdir(parents=True)
    (location / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {release}\n", "utf-8"
    )
    text = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in entry_points.items()
    )
    (location / "entry_points.txt").write_text(text, "utf-8")
    for module, source in modules.items():
        (site / f"{module}.py").write_text(source, "utf-8")


@pytest.fixture(name="lay")
def lay_fixture() -> Callable[..., None]:
    """`lay`, for test modules, which cannot import this one."""
    return lay


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A folder for components and plans."""
    return Shop(tmp_path)


@pytest.fixture
def kinds(shop: Shop) -> Shop:
    """A shop whose component has settings of every kind."""
    shop.own(ALL_KINDS)
    return shop
