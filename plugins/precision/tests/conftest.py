from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nlpkernel.context import Run
from nlpkernel.events import Notice
from nlpkernel.hookspecs.precision import Precision
from nlpkernel.plan.train import Train

torch.set_num_threads(1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(name="test", folder=tmp_path, cache=tmp_path, train=Train(), device=torch.device("cpu"))


@pytest.fixture
def notices(run: Run) -> list[Notice]:
    heard: list[Notice] = []
    run.bus.on(Notice, heard.append)
    return heard


@pytest.fixture
def make(run: Run) -> Iterator[Callable[..., Precision]]:
    """A precision from a component class and its settings; its component is closed at the end."""
    made: list[Any] = []

    def build(kind: type, **settings: Any) -> Precision:
        made.append(kind(**settings))
        precision: Precision = run.ask(made[-1], "create_precision", run=run)
        return precision

    yield build
    for component in reversed(made):
        component.close()
