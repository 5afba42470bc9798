"""Labs, and the unbroken run that every other one is compared with."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .lab import Lab
from .points import Record


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Make a lab; sections are laid over those of the plan."""
    made: list[Lab] = []

    def make(name: str = "lab", **sections: Any) -> Lab:
        made.append(Lab(tmp_path / name, **sections))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The unbroken run, of which every version is kept, and none was written beside the training."""
    lab = Lab(tmp_path_factory.mktemp("whole"), checkpoint={"keep": None, "asynchronous": False})
    lab.do("run", "plan.json", "-q")
    return lab


@pytest.fixture(scope="session")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What is there after a run of the plan as it is, to which nothing happened."""
    lab = Lab(tmp_path_factory.mktemp("tidy"))
    lab.do("run", "plan.json", "-q")
    return lab.remains()


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Record]:
    """What a run does, and what one does that is resumed after the third save."""
    lab = Lab(tmp_path_factory.mktemp("records"))
    trap = [{"what": "record", "file": "record.json"}]
    found = []
    for words in (["run", "plan.json"], ["resume", "runs/small", "--from", "12"]):
        began = time.monotonic()
        lab.do(*words, "-q", traps=trap)
        found.append(Record.read(lab.folder / "record.json", time.monotonic() - began))
    return found[0], found[1]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was killed, where each process was taken up, and what had to be done again."""
    reports = terminalreporter.stats.get("passed", [])
    kills = [
        kill
        for report in reports
        for name, value in report.user_properties
        if name == "kills"
        for kill in value
    ]
    if not kills:
        return
    terminalreporter.section(f"{len(kills)} kills")
    for kind, number in Counter(kill["kind"] for kill in kills).most_common():
        where = Counter(kill["where"] for kill in kills if kill["kind"] == kind)
        listed = (
            ", ".join(f"{each} {times}" for each, times in sorted(where.items())) if kind == "phase" else ""
        )
        terminalreporter.line(f"{kind:9}{number:4}  {listed}")
    for name, what in (("from", "taken up after step"), ("lost", "steps to be done again")):
        found = sorted(Counter(kill[name] for kill in kills).items())
        terminalreporter.line(f"{what}: " + ", ".join(f"{value} ({times} times)" for value, times in found))
