"""How much memory a save and a load take, as the kernel counts it."""

from __future__ import annotations

import json
import textwrap

import pytest

SIZE = 60_000_000

COMMON = """
import json, sys
from pathlib import Path
import torch
from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel.state import Leaf, Snapshot
from nlpkernel_store.component import Store

root, size = Path(sys.argv[1]), int(sys.argv[2])
run = Run(name="run", folder=root, cache=root, train=Train())
store = run.ask(Store(fsync=False), "open_store", run=run, folder=root, write=True)


def peak():
    "Bytes of the largest resident set of this process so far; of the file-backed part now."
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return [int(lines[name].split()[0]) * 1024 for name in ("VmHWM", "RssFile", "RssAnon")]
"""


@pytest.fixture
def child(children, tmp_path):
    """Run a script, and return what it has printed. A process that was forked begins with a peak of its own."""
    return lambda script: json.loads(children(COMMON + textwrap.dedent(script), tmp_path, SIZE)[0])


def test_saves_take_one_copy_of_the_state_and_a_load_none(child):
    before, saved = child(
        """
        state = {f"w{n}": Leaf(torch.full((size // 40,), float(n))) for n in range(10)}
        before = peak()
        for step in range(1, 4):
            for leaf in state.values():
                leaf.value.add_(1)
            store.save(Snapshot(step=step, tree=state, artifacts={}, facts={}))
            store.settle(wait=True)
        print(json.dumps([before, peak()]))
        """,
    )
    assert before[0] > SIZE
    assert 0.9 * SIZE < saved[0] - before[0] < 1.2 * SIZE
    before, mapped, verified = child(
        """
        before = peak()
        tree = store.load().tree
        mapped = peak()
        total = sum(float(leaf.value[-1]) for leaf in tree.values())
        assert total == sum(range(10)) + 30, total
        print(json.dumps([before, mapped, peak()]))
        """,
    )
    # The pages of the file itself are mapped, once; memory of its own the load takes next to none of.
    assert mapped[0] - before[0] < 1.2 * SIZE
    assert verified[2] - before[2] < 0.2 * SIZE
