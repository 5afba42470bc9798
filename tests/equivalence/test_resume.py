"""Resume across layouts: the curve goes on, whichever made the version and whichever takes it up; in the same layout,
bit for bit, with dropout."""

from __future__ import annotations

import json

import pytest
import torch

from nlpkernel.cli import main
from nlpkernel.engine.opening import activate, reading
from nlpkernel.plan import Plan

#: Name to workers and changes of the plan.
LAYOUTS = {
    "one": (1, {}),
    "data 2": (2, {}),
    "zero 1 on 4": (4, {"communicator": {"shard": 1}}),
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


@pytest.mark.parametrize("layout", ["data 2", "zero 1 on 4", "zero 3 on 2", "tensor 2", "pipeline 2"])
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
