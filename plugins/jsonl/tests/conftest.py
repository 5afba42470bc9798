from __future__ import annotations

import pytest

from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel_jsonl.component import Jsonl


@pytest.fixture
def run(tmp_path):
    return Run(name="first", folder=tmp_path / "run", cache=tmp_path / "cache", train=Train())


@pytest.fixture
def monitor(run):
    """Subscribe a monitor with these settings; `close` it at the end."""
    opened = []

    def make(**settings):
        made = Jsonl(**settings)
        made.subscribe(run, run.bus)
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close(run)
