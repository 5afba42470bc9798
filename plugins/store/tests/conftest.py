from __future__ import annotations

import pytest
import torch

from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel.state import Leaf, PerWorker, Replicated, Sharded, Snapshot, Spread
from nlpkernel_store.component import Store

from .children import Children

torch.set_num_threads(1)


@pytest.fixture
def run(tmp_path):
    made = Run(name="first", folder=tmp_path / "run", cache=tmp_path / "cache", train=Train())
    made.folder.mkdir()
    return made


@pytest.fixture(scope="session")
def children(tmp_path_factory):
    """Run scripts in processes of their own."""
    made = Children(tmp_path_factory.mktemp("children"))
    yield made
    made.close()


@pytest.fixture
def open_store(run):
    """Open a store as the engine does, with settings of the component. All are closed in the end."""
    opened = []

    def open_it(write=True, **settings):
        made = Store(**{"fsync": False, "retries": 0, **settings})
        store = run.ask(made, "open_store", run=run, folder=run.folder, write=write)
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        store.close()


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
                "model/piece": Leaf(weight[1:], Sharded.whole((2, 4))),
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


@pytest.fixture
def put():
    """Save, and wait for what becomes of it."""

    def save(store, *snapshots):
        for each in snapshots:
            store.save(each)
        return [saved.version for saved in store.settle(wait=True)]

    return save


@pytest.fixture
def files(run):
    """Every file of the run's store, by name."""

    def listed(prefix=""):
        root = run.folder / "versions"
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
        return sorted(name for name in names if name.startswith(prefix))

    return listed


@pytest.fixture
def equal():
    """Whether two snapshots hold the same values, of the same types, in the same order."""

    def whole(leaf):
        if isinstance(leaf.value, Spread):
            return Leaf(leaf.value.whole())
        return Leaf(leaf.value, Replicated() if isinstance(leaf.kind, Sharded) else leaf.kind)

    def same(left, right):
        if (left.step, left.artifacts, left.facts) != (right.step, right.artifacts, right.facts):
            return False
        if list(left.tree) != list(right.tree):
            return False
        for path, leaf in left.tree.items():
            leaf, other = whole(leaf), whole(right.tree[path])
            if leaf.kind != other.kind or type(leaf.value) is not type(other.value):
                return False
            if isinstance(leaf.value, torch.Tensor):
                if leaf.value.dtype != other.value.dtype or not torch.equal(leaf.value, other.value):
                    return False
            elif leaf.value != other.value:
                return False
        return True

    return same
