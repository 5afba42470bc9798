"""Faults that users of other trainers reported of many workers, each with the right value."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from nlpkernel.plan import Plan


def reported(lab, name):
    return json.loads((lab.root / "runs" / name / "report.json").read_text())


def logged(lab, name):
    events = (lab.root / "runs" / name / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, events) if "losses" in event]


NUMBERS = Path(__file__).parents[2] / "kernel/tests/engine/parts/numbers.py"
WEIGHT = '''
from nlpkernel import component, hookimpl


@component
class Weight:
    """Leaves the only weight of the model."""

    @hookimpl
    def subscribe(self, run, bus):
        """Events are not what it looks at."""

    @hookimpl
    def close(self, run):
        (run.folder / f"weight-{run.rank}").write_text(repr(float(run.model.module.w)))
'''


@pytest.mark.parametrize(("workers", "micro"), [(1, 2), (1, 1), (2, 1)])
def test_case_l1_two_workers_have_the_loss_and_the_gradient_of_one_batch(lab, workers, micro):
    """Micro-batches with (loss sum, tokens) = (2, 1) and (90, 9), one on each worker: 9.2, and not 6.0."""
    (lab.root / "weight.py").write_text(WEIGHT)
    name = f"sums on {workers} by {micro}"
    plan = {
        "name": name,
        "train": {"seed": 1, "steps": 1, "batch": 2, "micro": micro, "threads": 1, "log": {"every": 1}},
        "data": {"use": f"{NUMBERS}:Sums", "sums": [2.0, 90.0], "tokens": [1.0, 9.0]},
        "model": {"use": f"{NUMBERS}:Number"},
        "optimizer": {"use": f"{NUMBERS}:Descent", "lr": 0.5},
        "monitor": [{"use": "jsonl"}, {"use": f"{lab.root}/weight.py:Weight"}],
    }
    if workers > 1:
        plan["communicator"] = {"use": "torchdist", "workers": workers}
    path, folder = lab.root / f"{name}.json", lab.root / "runs" / name
    path.write_text(json.dumps(plan))
    folder.mkdir(parents=True)
    (folder / "plan.toml").write_text(Plan.load(path).text())
    asked = {"plan": str(path), "run": str(folder), "launch": secrets.token_hex(4), "resume": None}
    assert [answer.get("error") for answer in lab.tell(workers, [asked] * workers)] == [None] * workers
    assert [loss for event in logged(lab, name) for loss in event["losses"]] == [pytest.approx(9.2, abs=1e-6)]
    for rank in range(workers):
        gradient = (1 - float((folder / f"weight-{rank}").read_text())) / 0.5
        assert gradient == pytest.approx(9.2, abs=1e-6)


#: 5 micro-batches: one data worker gets 3, the other 2.
UNEVEN = {"train": {"batch": 10, "micro": 2, "steps": 8}}


def test_case_d9_uneven_shares_are_filled_up_with_what_counts_nothing(lab):
    one, two = lab.run("uneven one", **UNEVEN), lab.run("uneven two", 2, **UNEVEN)
    assert two.losses == pytest.approx(one.losses, rel=2e-6)
    assert reported(lab, "uneven two")["progress"]["samples"] == 80


@pytest.mark.parametrize("shard", [0, 3])
def test_case_d9_or_left_out_and_counted(lab, shard):
    communicator = {"uneven": "truncate", "shard": shard}
    ran = lab.run(f"truncated {shard}", 2, communicator=communicator, **UNEVEN)
    assert len(ran.losses) == 8
    left = [each for each in reported(lab, f"truncated {shard}")["counts"] if "left out" in each["what"]]
    assert [each["number"] for each in left] == [8]
    assert ran.losses != lab.run("uneven one", **UNEVEN).losses


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("shard", [0, 3])
def test_case_e1_five_samples_are_counted_once_on_any_number_of_workers(lab, workers, shard):
    held_out = lab.root / "five.txt"
    held_out.write_text(
        "\n".join(["river stone", "light on", "the of alpha", "beta", "gamma delta river on"])
    )
    changes = {"data": {"validation_paths": [str(held_out)]}, "train": {"batch": 1, "micro": 1, "steps": 1}}
    one = lab.run("five on 1", **changes)
    ran = lab.run(f"five on {workers}, {shard}", workers, communicator={"shard": shard}, **changes)
    assert ran.metrics["validation/accuracy"] == one.metrics["validation/accuracy"]
    assert ran.metrics["validation/loss"] == pytest.approx(one.metrics["validation/loss"], rel=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_case_l3_the_schedule_moves_once_a_step(lab, workers):
    changes = {
        "train": {"batch": 8, "micro": 2, "steps": 4, "log": {"every": 1}},
        "optimizer": {"lr": 1.0, "schedule": {"use": "linear", "warmup": 4}, "weight_decay": 0.0},
    }
    lab.run(f"warm-up on {workers}", workers, **changes)
    rates = [event["metrics"]["rate"] for event in logged(lab, f"warm-up on {workers}")]
    assert rates == [0.25, 0.5, 0.75, 1.0]


ODD = '''
from nlpkernel import component, hookimpl
from nlpkernel_transformer.component import Gpt

@component
class Odd(Gpt):
    """A model that is another one on each worker."""

    @hookimpl
    def create_model(self, run, info):
        self.hidden = 64 + run.rank
        return super().create_model(info)
'''


def test_item_18_another_model_on_one_worker_is_named_before_the_first_exchange(lab):
    (lab.root / "odd.py").write_text(ODD)
    odd = {"use": f"{lab.root}/odd.py:Odd", "layers": 2, "heads": 2, "width": 16}
    answers = lab.ask("odd", 2, model=odd, communicator={"use": "torchdist"}, train={"steps": 2})
    for answer in answers:
        assert "TDI002" in answer["error"]
        assert "worker 1 differs from worker 0 in the parameters of the model" in answer["error"]
        assert "blocks.0.mlp.up.weight (65, 16)" in answer["error"]
        assert "blocks.0.mlp.up.weight (64, 16)" in answer["error"]


def test_another_plan_on_one_worker_is_named_with_its_line(lab):
    asked = []
    folder = lab.root / "runs" / "two plans"
    launch = secrets.token_hex(4)
    for rate in (1e-3, 2e-3):
        plan = lab.plan("two plans", communicator={"use": "torchdist"}, optimizer={"lr": rate})
        path = plan.rename(plan.with_name(f"rate {rate}.json"))
        asked.append({"plan": str(path), "run": str(folder), "launch": launch, "resume": None})
    folder.mkdir(parents=True)
    (folder / "plan.toml").write_text(Plan.load(asked[0]["plan"]).text())
    answers = lab.tell(2, asked)
    for answer in answers:
        assert "worker 1 differs from worker 0 in the plan" in answer["error"]
        assert "'lr = 0.002', and on worker 0 'lr = 0.001'" in answer["error"]


def test_a_window_that_is_not_finite_on_one_worker_stops_all_alike(lab):
    """The loss of one worker's micro-batch is infinite; nobody takes the step."""
    bad = {"optimizer": {"lr": 1e30}, "train": {"steps": 30, "log": {"every": 1}}}
    answers = lab.ask("bad", 2, communicator={"use": "torchdist"}, **bad)
    assert len({answer["error"].partition(";")[0] for answer in answers}) == 1
    assert "is not finite" in answers[0]["error"]


SLOW = '''
import time
from nlpkernel import component, hookimpl
from nlpkernel_transformer.component import Gpt

@component
class Slow(Gpt):
    """Its forward takes 100 ms longer on worker 1."""

    @hookimpl
    def create_model(self, run, info):
        model = super().create_model(info)
        if run.rank == 1:
            model.module.register_forward_pre_hook(lambda *_: time.sleep(0.1))
        return model
'''


def test_item_9_a_straggler_is_named_although_all_steps_take_as_long(lab):
    (lab.root / "slow.py").write_text(SLOW)
    slow = {"use": f"{lab.root}/slow.py:Slow", "layers": 2, "heads": 2, "width": 16}
    lab.run("slow", 4, model=slow, train={"steps": 6, "micro": 2, "log": {"every": 3}})
    events = (lab.root / "runs" / "slow" / "events.jsonl").read_text()
    told = [
        event["message"]
        for event in map(json.loads, events.splitlines())
        if "keeps" in str(event.get("message"))
    ]
    assert len(told) == 1
    assert "worker 1 keeps the others waiting: it takes 1" in told[0]
