"""Compressors in runs: all workers decode the same, a run resumes bit for bit, and nothing that is owed is lost."""

from __future__ import annotations

import json
import subprocess

import pytest
import torch

from nlpkernel.engine.api import Loop
from nlpkernel.engine.opening import activate, reading
from nlpkernel.plan import Plan

from .conftest import Ran

COMPRESSORS = {
    "fp16": {"use": "fp16"},
    "bf16": {"use": "bf16"},
    "int8": {"use": "int8", "block": 64},
    "topk": {"use": "topk", "share": 0.05},
    "powersgd": {"use": "powersgd", "rank": 2},
}
#: Those that pay later what they do not send.
FEEDBACK = ("int8", "topk", "powersgd")
#: Loss after 20 steps, over that without a compressor: at most.
WORSE = {"fp16": 1.0005, "bf16": 1.0005, "int8": 1.01, "topk": 1.12, "powersgd": 1.05}
STEPS, AT = 20, 10

PROBE = '''
import hashlib
import json

from nlpkernel import component, hookimpl, setting
from torch.distributed.tensor import DTensor


@component
class Digest:
    """Leaves digests of each worker's weights."""

    @hookimpl
    def subscribe(self, run, bus):
        """Events are not what it looks at."""

    @hookimpl
    def close(self, run):
        digests = {}
        for name, tensor in run.model.module.named_parameters():
            if isinstance(tensor, DTensor):
                name += f" of {run.group.axes['tensor'].rank}" if tensor.placements[0].is_shard() else ""
                tensor = tensor.to_local()
            digests[name] = hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()
        (run.folder / f"weights-{run.rank}").write_text(json.dumps(digests))


@component
class Spoil:
    """Sees gradients before they are added up, and spoils those of one window on the last worker."""

    step: int = setting(default=-1, help="the window")

    @hookimpl
    def subscribe(self, run, bus):
        """Events are not what it looks at."""

    @hookimpl
    def gradients_ready(self, run, named, stage):
        if stage == "local" and run.progress.step == self.step and run.rank == run.world - 1:
            named[len(named) // 2][1].view(-1)[3] = float("nan")
'''


def run(lab, name, workers=2, *, compressor=None, monitors=(), every=AT, **changes):
    probe = lab.root / "probe.py"
    if not probe.exists():
        probe.write_text(PROBE)
    changes["train"] = {"steps": STEPS, **changes.get("train", {})}
    changes["checkpoint"] = {"every": every}
    changes["monitor"] = [{"use": "jsonl"}, {"use": f"{probe}:Digest"}, *monitors]
    if compressor is not None:
        communicator = {"use": "torchdist", "workers": workers, **changes.get("communicator", {})}
        changes["communicator"] = {**communicator, "compressor": compressor}
    return lab.run(name, workers, **changes)


def assert_same_weights(ran, workers=2):
    """On all workers that have them."""
    found = [json.loads(path.read_text()) for path in ran.folder.glob("weights-*")]
    assert len(found) == workers
    for name in {name for each in found for name in each}:
        assert len({each[name] for each in found if name in each}) == 1, name


def notices(ran):
    events = map(json.loads, (ran.folder / "events.jsonl").read_text().splitlines())
    return [(event["level"], event["message"]) for event in events if "level" in event]


def version(ran, step):
    """Name and tree of the version of a step."""
    context, hooks, composition = activate(Plan.load(ran.folder / "plan.toml"), ran.folder)
    with reading(context, hooks, composition) as store:
        # A run that was continued from here has its own beside that of before.
        name = [info.name for info in store.list() if info.step == step][-1]
        return name, store.load(name).tree


def owed(tree):
    """The sum that all workers owe, by parameter."""
    return {
        path.removeprefix("group/residual/"): leaf.value.total().clone()
        for path, leaf in tree.items()
        if path.startswith("group/residual/")
    }


@pytest.mark.parametrize("name", COMPRESSORS)
def test_all_workers_decode_the_same_and_the_run_learns(lab, name):
    ran = run(lab, name, compressor=COMPRESSORS[name])
    plain = run(lab, "plain")
    assert_same_weights(ran)
    assert ran.losses != plain.losses
    assert ran.losses[-1] < WORSE[name] * plain.losses[-1]
    assert ran.losses[-1] < 0.92 * ran.losses[0]


@pytest.mark.parametrize("name", FEEDBACK)
def test_item_30_a_run_resumes_bit_for_bit_with_what_its_workers_owe(lab, name):
    ran = run(lab, name, compressor=COMPRESSORS[name])
    at, tree = version(ran, AT)
    assert any(each.any() for each in owed(tree).values())
    again = run(lab, f"{name}, resumed", compressor=COMPRESSORS[name], of=name, resume=at)
    assert again.losses[STEPS:] == ran.losses[AT:]
    assert all(torch.equal(again.weights[key], each) for key, each in ran.weights.items())
    last, repeated = (owed(version(each, STEPS)[1]) for each in (ran, again))
    assert all(torch.equal(last[key], each) for key, each in repeated.items())


SGD = {"use": "sgd", "lr": 0.5, "momentum": 0.0, "weight_decay": 0.0, "schedule": {"use": "constant"}}


@pytest.mark.parametrize("workers", [1, 4])
def test_item_30_another_number_of_workers_owes_the_same_sum(lab, workers):
    """What it sends in its first step, and owes after it, is what was owed before and the gradient of that step."""
    steps = 4
    plain = {"optimizer": SGD, "train": {"steps": steps, "clip": None}}
    changes = {**plain, "compressor": COMPRESSORS["topk"], "every": steps - 1}
    at, tree = version(run(lab, "topk, sgd", **changes), steps - 1)
    after = run(lab, f"topk, sgd, to {workers}", workers, of="topk, sgd", resume=at, **changes)
    left = owed(version(after, steps)[1])
    assert (workers == 1) == (not left)
    folder = lab.root / "runs" / f"reference of {workers}"
    subprocess.run(["cp", "-r", lab.root / "runs" / "topk, sgd", folder], check=True)
    changed = ["communicator", "monitor", "checkpoint"]
    loop = Loop(Plan.load(lab.plan("one", **plain)), folder, resume=at, allow=changed, quiet=True)
    for _ in loop.steps():
        pass
    weights = Ran.read(folder).weights
    for name, before in owed(tree).items():
        missing = (weights[name] - after.weights[name]) / SGD["lr"] + left.get(name, 0)
        torch.testing.assert_close(missing, before, rtol=1e-3, atol=1e-6)


def test_one_process_pays_what_is_owed_without_a_compressor_too(lab):
    steps = 4
    plain = {"optimizer": SGD, "train": {"steps": steps, "clip": None}}
    changes = {**plain, "compressor": COMPRESSORS["topk"], "every": steps - 1}
    at, _ = version(run(lab, "topk, sgd", **changes), steps - 1)
    folder = lab.root / "runs" / "one without"
    subprocess.run(["cp", "-r", lab.root / "runs" / "topk, sgd", folder], check=True)
    plan = Plan.load(lab.plan("one without", communicator={"use": "torchdist", "workers": 1}, **plain))
    for _ in Loop(
        plan, folder, resume=at, allow=["communicator", "monitor", "checkpoint"], quiet=True
    ).steps():
        pass
    paid = run(lab, "topk, sgd, to 1", 1, of="topk, sgd", resume=at, **changes).weights
    assert all(torch.equal(each, paid[name]) for name, each in Ran.read(folder).weights.items())


@pytest.mark.parametrize(("layout", "name"), [("tensor", "topk"), ("pipeline", "powersgd")])
def test_copies_along_other_axes_stay_copies_and_resume_bit_for_bit(lab, layout, name):
    steps = 6
    changes = {
        "compressor": COMPRESSORS[name],
        "communicator": {layout: 2},
        "train": {"steps": steps},
        "optimizer": {"lr": 1e-2},
        "every": steps // 2,
    }
    title = f"{name} with {layout}"
    ran = run(lab, title, 4, **changes)
    assert_same_weights(ran, 4)
    assert ran.losses[-1] < 0.95 * ran.losses[0]
    at, _ = version(ran, steps // 2)
    again = run(lab, f"{title}, resumed", 4, of=title, resume=at, **changes)
    assert again.losses[steps:] == ran.losses[steps // 2 :]
    assert all(torch.equal(again.weights[key], each) for key, each in ran.weights.items())


def test_it_works_where_gradients_are_seen_before_they_are_added_up(lab):
    name = "topk"
    probe = {"use": f"{lab.root / 'probe.py'}:Spoil"}
    ran = run(lab, f"{name}, seen", compressor=COMPRESSORS[name], monitors=[probe])
    hidden = run(lab, name, compressor=COMPRESSORS[name])
    assert_same_weights(ran)
    assert ran.losses == pytest.approx(hidden.losses, rel=2e-2)


def test_a_window_that_is_left_out_spoils_nothing(lab):
    """Its gradient is no number on one worker alone."""
    name = "topk"
    probe = {"use": f"{lab.root / 'probe.py'}:Spoil", "step": 5}
    train = {"on_nan": "skip", "log": {"every": 1}}
    ran = run(lab, f"{name}, spoilt", compressor=COMPRESSORS[name], monitors=[probe], train=train)
    report = json.loads((ran.folder / "report.json").read_text())
    skipped = [each["number"] for each in report["counts"] if "windows skipped" in each["what"]]
    assert skipped == [1]
    assert_same_weights(ran)
    assert all(each.isfinite().all() for each in owed(version(ran, STEPS)[1]).values())
    assert ran.losses[-1] < WORSE[name] * run(lab, "plain").losses[-1]


def test_a_loss_scale_goes_with_it(lab):
    changes = {"compressor": COMPRESSORS["topk"], "precision": {"use": "fp16"}}
    ran = run(lab, "topk, fp16", **changes)
    at, _ = version(ran, AT)
    again = run(lab, "topk, fp16, resumed", of="topk, fp16", resume=at, **changes)
    assert again.losses[STEPS:] == ran.losses[AT:]
    assert ran.losses == pytest.approx(run(lab, "topk", compressor=COMPRESSORS["topk"]).losses, rel=2e-2)


def test_the_run_says_what_it_sends_and_that_it_does_not_pay(lab):
    """On the loopback interface, nothing that has to look for the greatest values pays."""
    wide = {"train": {"steps": 1}, "model": {"width": 64}}
    ran = run(lab, "topk, wide", compressor={"use": "topk", "share": 0.4}, **wide)
    (level, said), *others = [each for each in notices(ran) if "compressor topk" in each[1]]
    elements = sum(each.numel() for each in ran.weights.values())
    assert not others
    assert level == "warning"
    assert said.endswith("it slows the run down")
    assert f"sends {8 * -(-elements * 2 // 5):,} bytes a step instead of {4 * elements:,} (80.0%)" in said


def test_a_version_of_another_compressor_is_not_taken_up_unasked(lab):
    ran = run(lab, "topk", compressor=COMPRESSORS["topk"])
    at, _ = version(ran, AT)
    for name, compressor in (("another", COMPRESSORS["int8"]), ("none", None)):
        changes = {"communicator": {"use": "torchdist", "workers": 2}}
        if compressor is not None:
            changes["communicator"]["compressor"] = compressor
        answers = lab.ask(f"topk to {name}", 2, of="topk", resume=at, train={"steps": STEPS}, **changes)
        assert all("communicator.compressor" in answer["error"] for answer in answers)
