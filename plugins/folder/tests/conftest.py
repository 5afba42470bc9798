from __future__ import annotations

import pytest
import torch

from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel.state import Leaf, PerWorker, Sharded, Snapshot
from nlpkernel_folder.component import Folder

torch.set_num_threads(1)


@pytest.fixture
def run(tmp_path):
    made = Run(name="first", folder=tmp_path / "run", cache=tmp_path / "cache", train=Train())
    made.folder.mkdir()
    return made


@pytest.fixture
def open_store(run):
    """Open a store as the engine does, with settings of the component."""

    def open_it(**settings):
        return run.ask(Folder(**settings), "open_store", run=run, folder=run.folder)

    return open_it


@pytest.fixture
def snapshot():
    """Make a snapshot whose every value depends on `seed`."""

    def make(step=200, seed=0, loss=None, tree=None, mode="min"):
        weight = torch.arange(12, dtype=torch.float32).reshape(3, 4) + seed
        return Snapshot(
            step=step,
            tree=tree
            or {
                "model/w": Leaf(weight),
                "model/piece": Leaf(weight[1:], Sharded((6, 4), (2, 0))),
                "optimizer/count": Leaf(seed),
                "random/python": Leaf((3, tuple(range(seed, seed + 625)), None), PerWorker(0)),
            },
            artifacts={"tokenizer.json": b'{"seed": %d}' % seed, "a/b c": b""},
            facts={
                "metrics": {} if loss is None else {"validation/loss": loss},
                "main": ["validation/loss", mode],
                "progress": (step, seed),
            },
        )

    return make


def same(left, right):
    """Whether two snapshots hold the same values, of the same types, in the same order."""
    if (left.step, left.artifacts, left.facts) != (right.step, right.artifacts, right.facts):
        return False
    if list(left.tree) != list(right.tree):
        return False
    for path, leaf in left.tree.items():
        other = right.tree[path]
        if leaf.kind != other.kind or type(leaf.value) is not type(other.value):
            return False
        if isinstance(leaf.value, torch.Tensor):
            if leaf.value.dtype != other.value.dtype or not torch.equal(leaf.value, other.value):
                return False
        elif leaf.value != other.value:
            return False
    return True


@pytest.fixture
def equal():
    return same
