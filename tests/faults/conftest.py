"""Labs, and the unbroken run that every other one is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .lab import Lab


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
