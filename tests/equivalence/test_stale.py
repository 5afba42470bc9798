"""Weights that are changed between two forwards: the next one computes with what is held then, under every layout."""

from __future__ import annotations

import json

import pytest

from .test_layouts import assert_same_curve

PROBE = '''
from contextlib import contextmanager

import torch

from nlpkernel import component, hookimpl


@component
class Once:
    """Spoils the gradients of window 12, the first time that it comes."""

    @hookimpl
    def subscribe(self, run, bus):
        self.done = False

    @hookimpl
    def gradients_ready(self, run, named, stage):
        if stage == "global" and run.progress.step == 12 and not self.done:
            self.done = True
            for _, gradient in named:
                gradient.fill_(float("nan"))


@component
class Halves:
    """Evaluates with half of each weight."""

    @hookimpl
    def subscribe(self, run, bus):
        """Events are not what it looks at."""

    @hookimpl
    def weights_for(self, run, use):
        return self.halved(run)

    @contextmanager
    def halved(self, run):
        from nlpkernel_torchdist.tensor import DTensor
        held = [each.to_local() if isinstance(each, DTensor) else each for each in run.model.module.parameters()]
        for factor in (0.5, 2.0):
            with torch.no_grad():
                for tensor in held:
                    tensor.mul_(factor)
            if factor == 0.5:
                yield
'''

FEW = {"train": {"steps": 18, "on_nan": "rollback"}, "checkpoint": {"every": 10}}
LAYOUTS = {
    "zero 1": {"shard": 1},
    "zero 2": {"shard": 2},
    "zero 2, each micro-batch": {"shard": 2, "reduce": "microbatch"},
    "zero 3": {"shard": 3},
}


def run(lab, name, workers, *, probe, **changes):
    path = lab.root / "changing.py"
    path.write_text(PROBE)
    changes["monitor"] = [{"use": "jsonl"}, {"use": f"{path}:{probe}"}]
    return lab.run(name, workers, **changes)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_a_roll_back_the_gradients_are_those_of_the_restored_weights(lab, layout):
    one = run(lab, "one, back", 1, probe="Once", **FEW)
    ran = run(lab, f"{layout}, back", 2, probe="Once", communicator=LAYOUTS[layout], **FEW)
    counts = json.loads((ran.folder / "report.json").read_text())["counts"]
    assert [each["number"] for each in counts if each["what"] == "roll-backs"] == [1]
    # Of the window that was spoilt nobody knows a loss.
    assert [loss is None for loss in ran.losses] == [loss is None for loss in one.losses]
    known, wanted = ([loss for loss in each.losses if loss is not None] for each in (ran, one))
    assert len(wanted) == len(one.losses) - 1
    assert known == pytest.approx(wanted, rel=2e-6)
    gap = max(float((ran.weights[name] - each).abs().max()) for name, each in one.weights.items())
    assert gap <= 1e-4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_that_are_there_for_an_evaluation_alone_are_evaluated_and_not_trained_on(lab, layout):
    changes = {"train": {"steps": 9, "evaluate": {"every": 3}}, "data": {"validation": 0.1}}
    one = run(lab, "one, halves", 1, probe="Halves", **changes)
    ran = run(lab, f"{layout}, halves", 2, probe="Halves", communicator=LAYOUTS[layout], **changes)
    whole = lab.run("one, whole", **changes)
    assert one.losses == whole.losses
    assert one.metrics["validation/loss"] != whole.metrics["validation/loss"]
    assert_same_curve(ran, one, 9)
