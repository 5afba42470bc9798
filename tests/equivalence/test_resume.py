"""Resume across layouts: the curve goes on, whichever made the version and whichever takes it up; in the same layout,
bit for bit, with dropout."""

from __future__ import annotations

import json

import pytest
import torch

from nlpkernel.cli import main
from nlpkernel.engine.opening import activate, reading
from nlpkernel.plan import Plan
from nlpkernel.state import Spread

#: Name to workers and changes of the plan.
LAYOUTS = {
    "one": (1, {}),
    "data 2": (2, {}),
    "zero 1 on 4": (4, {"communicator": {"shard": 1}}),
    "zero 2 on 2": (2, {"communicator": {"shard": 2}}),
    "zero 3 on 2": (2, {"communicator": {"shard": 3}}),
    "data 3": (3, {}),
    "tensor 2": (2, {"communicator": {"tensor": 2}}),
    "pipeline 2": (2, {"communicator": {"pipeline": 2}}),
}
#: From each layout to one process and back, and some in between.
PAIRS = [
    *((first, "one") for first in LAYOUTS),
    *(("one", second) for second in LAYOUTS if second != "one"),
    ("data 2", "zero 3 on 2"),
    ("zero 1 on 4", "data 3"),
    ("tensor 2", "pipeline 2"),
    ("pipeline 2", "zero 3 on 2"),
]
AT = 20


def version_at(lab, name, step):
    folder = lab.root / "runs" / name
    run, hooks, composition = activate(Plan.load(folder / "plan.toml"), folder)
    with reading(run, hooks, composition) as store:
        return next(info.name for info in store.list() if info.step == step)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_case_r10_a_version_of_any_layout_is_taken_up_by_any_other(lab, first, second):
    workers, changes = LAYOUTS[first]
    before = lab.run(first, workers, **changes)
    workers, changes = LAYOUTS[second]
    name = f"{first} to {second}"
    after = lab.run(name, workers, of=first, resume=version_at(lab, first, AT), **changes)
    reference = lab.run("one")
    assert len(after.losses) == len(before.losses) + 50 - AT
    again = after.losses[len(before.losses) :]
    worst = max(abs(a - b) / abs(b) for a, b in zip(again, reference.losses[AT:], strict=True))
    assert worst <= 2e-6, f"losses differ by {worst:.1e}"
    gap = max(float((after.weights[name] - each).abs().max()) for name, each in reference.weights.items())
    assert gap <= 1e-4


HELD = '''
from nlpkernel import component, hookimpl
from nlpkernel.hookspecs.everywhere import Action, Decision


@component
class Held:
    """In a run whose folder is called so, no window changes anything, and the first of them is the last."""

    @hookimpl
    def subscribe(self, run, bus):
        self.holds = run.folder.name.startswith("held")

    @hookimpl
    def gradients_ready(self, run, named, stage):
        if self.holds and stage == "global":
            for _, gradient in named:
                gradient.fill_(float("nan"))

    @hookimpl
    def decide(self, run, progress):
        if self.holds and progress.step == 9:
            return Decision(Action.STOP, "it was held")
'''
#: From which layouts to which, on how many workers.
HOLDING = {
    "data 2": (2, {}),
    "zero 1 on 2": (2, {"shard": 1}),
    "zero 2 on 2": (2, {"shard": 2}),
    "zero 3 on 2": (2, {"shard": 3}),
    "tensor 2": (2, {"tensor": 2}),
    "pipeline 2": (2, {"pipeline": 2}),
}
GATHERED = [
    *((first, second) for first in ("zero 2 on 2", "zero 3 on 2") for second in ("1", "3", "4")),
    ("zero 1 on 2", "3"),
    ("zero 3 on 2", "zero 2 on 2"),
    ("zero 2 on 2", "tensor 2"),
    ("tensor 2", "zero 2 on 2"),
    ("pipeline 2", "zero 1 on 2"),
    ("data 2", "zero 3 on 2"),
]


def gathered(lab, name, step):
    """Weights and moments of a version, whole."""
    folder = lab.root / "runs" / name
    run, hooks, composition = activate(Plan.load(folder / "plan.toml"), folder)
    with reading(run, hooks, composition) as store:
        version = [info.name for info in store.list() if info.step == step][-1]
        tree = store.load(version).tree
        found = {}
        for path, leaf in tree.items():
            value = leaf.value.whole() if isinstance(leaf.value, Spread) else leaf.value
            if path.startswith(("model/", "optimizer/")) and isinstance(value, torch.Tensor):
                found[path] = value.clone()
        return found


@pytest.mark.parametrize(("first", "second"), GATHERED)
def test_case_r10_gathered_weights_and_moments_are_those_that_were_saved_bit_for_bit(lab, first, second):
    """The second run takes a version up, leaves one window out, and saves what it has: as it was."""
    (lab.root / "held.py").write_text(HELD)
    plan = {
        "train": {"steps": 10, "on_nan": "skip"},
        "checkpoint": {"every": 8},
        "monitor": [{"use": "jsonl"}, {"use": f"{lab.root}/held.py:Held"}],
    }
    workers, communicator = HOLDING[first]
    before = f"before, {first}"
    lab.run(before, workers, communicator=communicator, **plan)
    same_shard = {"shard": communicator.get("shard", 0)}
    workers, communicator = HOLDING.get(second) or (int(second), same_shard if second != "1" else {})
    name = f"held {first} to {second}"
    changes = {"communicator": communicator} if workers > 1 else {}
    lab.run(name, workers, of=before, resume=version_at(lab, before, 8), **changes, **plan)
    saved, taken = gathered(lab, before, 8), gathered(lab, name, 9)
    assert any(path.endswith("/exp_avg") for path in saved)
    assert taken.keys() == saved.keys()
    assert [path for path, value in saved.items() if not torch.equal(taken[path], value)] == []


@pytest.mark.parametrize(
    "layout", ["data 2", "zero 1 on 4", "zero 2 on 2", "zero 3 on 2", "tensor 2", "pipeline 2"]
)
def test_with_dropout_a_layout_repeats_itself_and_resumes_bit_for_bit(lab, layout):
    workers, changes = LAYOUTS[layout]
    changes = {**changes, "model": {"dropout": 0.2}}
    ran, again = (lab.run(f"{layout}, dropout {take}", workers, **changes) for take in ("a", "b"))
    assert ran.losses == again.losses
    name = f"{layout}, dropout a"
    resumed = lab.run(f"{name}, resumed", workers, of=name, resume=version_at(lab, name, AT), **changes)
    assert resumed.losses[len(ran.losses) :] == ran.losses[AT:]
    assert all(torch.equal(resumed.weights[name], each) for name, each in ran.weights.items())
    assert ran.losses != lab.run(layout, workers, **LAYOUTS[layout][1]).losses


@pytest.mark.parametrize("layout", ["data 2", "zero 3 on 2"])
def test_verify_resume_kills_and_resumes_all_workers(lab, layout, capsys, monkeypatch):
    monkeypatch.chdir(lab.root)
    workers, changes = LAYOUTS[layout]
    communicator = {"use": "torchdist", "workers": workers, **changes.get("communicator", {})}
    plan = lab.plan("proved", communicator=communicator, model={"dropout": 0.2})
    assert main(["verify-resume", str(plan), "--steps", "8", "--kills", "1", "--json"]) == 0
    proof = json.loads(capsys.readouterr().out)
    assert proof["holds"]
    assert [part["killed"] for part in proof["parts"]] == [True, False]


def test_data_workers_drop_differently(lab):
    """Or two halves of a batch would be regularised as one."""
    batches = {"train": {"batch": 2, "micro": 1, "steps": 20}, "model": {"dropout": 0.5}}
    alike = lab.run("dropout, data 2", 2, **batches)
    assert alike.losses != lab.run("dropout, one", **batches).losses
