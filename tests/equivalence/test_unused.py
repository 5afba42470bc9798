"""Parameters without a gradient: in every window, or in some, on all workers or on one of them."""

from __future__ import annotations

import json

import pytest
import torch

from .test_layouts import assert_same_curve

MODEL = '''
from nlpkernel import component, hookimpl, setting
from nlpkernel_transformer.component import Gpt


@component
class Passing(Gpt):
    """The third block is passed over by each micro-batch whose tokens add up to a multiple of `every`, from the step
    `first` on. The block before the last is never used."""

    every: int = setting(default=2, help="1: by all of them")
    first: int = setting(default=0, help="a step")

    @hookimpl
    def create_model(self, run, info):
        model = super().create_model(info)
        passed = []

        def look(module, args, kwargs):
            tokens = kwargs["tokens"] if "tokens" in kwargs else args[0]
            passed[:] = [run.progress.step >= self.first and int(tokens.sum()) % self.every == 0]

        def through(block, always):
            inner = block.forward
            block.forward = lambda x, *rest, **named: x if always or passed[0] else inner(x, *rest, **named)

        model.module.register_forward_pre_hook(look, with_kwargs=True)
        through(model.module.blocks[1], always=False)
        if self.first == 0:
            through(model.module.blocks[2], always=True)
        return model
'''
FEW = {"train": {"steps": 10, "batch": 8, "micro": 2, "log": {"every": 1}}}
LAYOUTS = {
    "data 2": (2, {}),
    "data 4": (4, {}),
    "data 2, said before": (2, {"unused": True}),
    "zero 1": (2, {"shard": 1}),
    "zero 1 on 4": (4, {"shard": 1}),
    "tensor 2": (2, {"tensor": 2}),
    "data 2 x tensor 2": (4, {"tensor": 2}),
}


def run(lab, name, workers, *, ask=False, model=None, **changes):
    path = lab.root / "passing.py"
    path.write_text(MODEL)
    changes = {**FEW, **changes, "model": {"use": f"{path}:Passing", **(model or {})}}
    if ask:
        changes["communicator"] = {"use": "torchdist", "workers": workers, **changes.get("communicator", {})}
        return lab.ask(name, workers, **changes)
    return lab.run(name, workers, **changes)


def blocks(ran, number):
    return {name: each for name, each in ran.weights.items() if name.startswith(f"blocks.{number}.")}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_model_that_uses_some_parameters_now_and_then_trains_as_in_one_process(lab, layout):
    """A micro-batch of two rows passes a block over, so workers differ; what nobody uses does not decay."""
    workers, communicator = LAYOUTS[layout]
    one = run(lab, "one", 1)
    assert_same_curve(run(lab, layout, workers, communicator=communicator), one, 10)
    used, unused = blocks(one, 1), blocks(one, 2)
    begun = blocks(run(lab, "one, two steps", 1, train={**FEW["train"], "steps": 2}), 2)
    assert all(torch.equal(each, begun[name]) for name, each in unused.items())
    assert used


def test_the_first_step_alone_is_right_too(lab):
    """Where DDP complains before its second one at the earliest."""
    train = {**FEW["train"], "steps": 1}
    one, two = (run(lab, f"{number}, once", number, train=train) for number in (1, 2))
    assert_same_curve(two, one, 1)
    events = map(json.loads, (two.folder / "events.jsonl").read_text().splitlines())
    told = [event["message"] for event in events if "has given no gradient to" in str(event.get("message"))]
    assert len(told) == 1
    assert "blocks.2.attention" in told[0]


LATE = {"every": 1, "first": 3}


def test_a_parameter_that_is_not_used_later_is_named_before_any_weight_is_changed(lab):
    answers = run(lab, "late", 2, ask=True, model=LATE)
    for answer in answers:
        assert "TDI008 this window has given no gradient to blocks.1." in answer["error"]
        assert "unused = true" in answer["error"]
    report = json.loads((lab.root / "runs" / "late" / "report.json").read_text())
    assert report["progress"]["step"] == 3


@pytest.mark.parametrize("layout", ["data 2, said before", "data 2 x tensor 2"])
def test_or_is_left_alone_where_that_was_said_or_costs_nothing(lab, layout):
    workers, communicator = LAYOUTS[layout]
    one = run(lab, "one, late", 1, model=LATE)
    assert_same_curve(run(lab, f"{layout}, late", workers, model=LATE, communicator=communicator), one, 10)


@pytest.mark.parametrize("shard", [2, 3])
def test_where_parameters_are_divided_it_has_to_be_said_before(lab, shard):
    """What nobody uses has a gradient of zeros there, which this optimizer takes for none."""
    plain = {"use": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "schedule": {"use": "constant"}}
    communicator = {"shard": shard, "unused": True}
    one = run(lab, "one, plain", 1, optimizer=plain)
    assert_same_curve(run(lab, f"zero {shard}", 2, communicator=communicator, optimizer=plain), one, 10)


def test_a_compressor_keeps_what_it_owes(lab):
    communicator = {"use": "torchdist", "compressor": {"use": "int8", "block": 64}}
    ran = run(lab, "int8", 2, communicator=communicator)
    assert ran.losses == pytest.approx(run(lab, "one", 1).losses, rel=5e-3)
    assert all(each.isfinite().all() for each in ran.weights.values())
