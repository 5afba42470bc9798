"""Plans with the component, of one worker and of two."""

import json
import subprocess
import sys

import pytest
import torch

import nlpkernel
from nlpkernel.errors import PlanError
from nlpkernel.events import Logged, Notice
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_noise_scale.codes import CODES
from nlpkernel_noise_scale.component import NoiseScale
from nlpkernel_noise_scale.events import NoiseScaleEstimated
from nlpkernel_sdk import record, tiny_plan, tiny_values
from nlpkernel_sdk.light import brought, faults_of_codes, without_help
from nlpkernel_sdk.regression import RegressionData
from nlpkernel_sdk.testing import make_run
from nlpkernel_sdk.tiny import TinyData

ROWS, BATCH, DECAY = 1024, 16, 0.995


def values(steps=200, **settings):
    """Weights that stand still at 0, so that the true noise scale is that of all rows."""
    return {
        "train": {"steps": steps, "batch": BATCH, "micro": BATCH // 2, "log": {"every": 50}},
        "data": {"rows": ROWS},
        "model": {"value": 0.0, "transform": [{"use": "noise-scale", "decay": DECAY, **settings}]},
        "optimizer": {"lr": 1e-12, "kind": "sgd"},
    }


def gradients(tmp_path, **train):
    """The data of such a run, and the gradient of each row at weights of 0."""
    made = make_run(tmp_path / "own", **{"steps": 1, "batch": BATCH, "micro": BATCH // 2, **train})
    data = RegressionData(TinyData(rows=ROWS), made)

    def of(rows):
        inputs = torch.cat([rows["x"], torch.ones(len(rows["x"]), 1)], 1).double()
        return -2 * rows["y"].double()[:, None] * inputs

    return data, of


def replayed(tmp_path, compare, steps):
    """Noise and signal by the formulas, from the rows of each window."""
    data, of = gradients(tmp_path)
    noise = signal = weight = 0.0
    last = None
    for step in range(steps):
        first, second = (of(data.microbatch(step, index)).mean(0) for index in (0, 1))
        whole = (first + second) / 2
        if compare == "workers":
            n = (first @ first - whole @ whole) / (1 / 8 - 1 / 16)
            g = (16 * whole @ whole - 8 * first @ first) / 8
        elif last is None:
            last = whole
            continue
        else:
            n, g, last = (whole - last) @ (whole - last) * 8, whole @ last, None
        noise, signal, weight = (
            DECAY * old + (1 - DECAY) * float(new) for old, new in ((noise, n), (signal, g), (weight, 1))
        )
    return noise / weight, signal / weight


def truth(tmp_path):
    """The noise scale of all rows."""
    data, of = gradients(tmp_path, batch=ROWS, micro=ROWS)
    each = of(data.microbatch(0, 0))
    return float(each.var(0).sum() / each.mean(0).square().sum())


def told(events):
    return [event for event in events if isinstance(event, NoiseScaleEstimated)]


def test_one_worker_compares_windows_and_finds_the_scale_of_its_data(tmp_path):
    events = record(tiny_plan(**values()), tmp_path)
    found = told(events)
    assert [event.progress.step for event in found] == [50, 100, 150, 200]
    assert found[-1].compare == "windows"
    assert found[-1].batch == 16
    assert (found[-1].noise, found[-1].signal) == pytest.approx(replayed(tmp_path, "windows", 200), rel=1e-4)
    assert found[-1].scale == pytest.approx(truth(tmp_path), rel=0.25)
    assert found[-1].scale == pytest.approx(found[-1].noise / found[-1].signal)
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert "compares the gradients of windows" in notices
    assert any(f"about {found[-1].scale:.3g} samples; a window has 16" in text for text in notices)


def test_two_workers_compare_a_share_with_the_whole(tmp_path):
    pytest.importorskip("nlpkernel_torchdist")
    pytest.importorskip("nlpkernel_jsonl")
    plan = tiny_values(
        **values(steps=50),
        communicator={"use": "torchdist", "workers": 2, "device": "cpu"},
        monitor=[{"use": "jsonl"}],
    )
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "nlpkernel", "run", "plan.json", "-q"], cwd=tmp_path, check=True, timeout=120
    )
    lines = (tmp_path / "runs/tiny/events.jsonl").read_text(encoding="utf-8").splitlines()
    found = [event for event in map(json.loads, lines) if event["event"] == "NoiseScaleEstimated"]
    assert len(found) == 1
    assert found[0]["compare"] == "workers"
    assert (found[0]["noise"], found[0]["signal"]) == pytest.approx(
        replayed(tmp_path, "workers", 50), rel=1e-4
    )


def test_it_changes_no_number_of_the_run(tmp_path):
    def losses(transform, folder):
        plan = tiny_plan(train={"steps": 9}, model={"transform": transform})
        return [event.metrics for event in record(plan, tmp_path / folder) if isinstance(event, Logged)]

    assert losses([{"use": "noise-scale"}], "with") == losses([], "without")


def test_a_resumed_run_tells_what_the_unbroken_one_tells(tmp_path):
    plan = tiny_plan(
        train={"steps": 9},
        model={"transform": [{"use": "noise-scale"}]},
        checkpoint={"use": "memory", "every": 100},
    )

    def until(events, step):
        heard = []
        for event in events:
            heard += told([event])
            if heard and heard[-1].progress.step == step:
                break
        events.close()
        return [(event.progress.step, event.noise, event.signal) for event in heard]

    whole = until(nlpkernel.train(plan, runs_folder=tmp_path / "whole"), 9)
    # After five windows one waits for its second.
    broken = until(nlpkernel.train(plan, runs_folder=tmp_path / "broken"), 5)
    broken += until(nlpkernel.train(plan, runs_folder=tmp_path / "broken", resume="newest"), 9)
    assert broken == whole
    assert [step for step, *_ in whole] == [2, 3, 4, 5, 6, 7, 8, 9]


SCALED = """
import torch
from nlpkernel import component, hookimpl
from contextlib import nullcontext

class Fixed:
    name, parameter, reduce, output, scaled = "fp16", torch.float32, torch.float32, torch.float32, True
    def autocast(self): return nullcontext()
    def scale(self, loss): return loss * 1024
    def unscale(self, gradients):
        for each in gradients: each /= 1024
    def observe(self, bad): pass
    def state(self): return {}
    def load_state(self, state): pass

@component
class Scaled:
    @hookimpl
    def create_precision(self):
        return Fixed()
"""


def test_a_loss_scale_is_not_in_the_numbers(tmp_path):
    (tmp_path / "scaled.py").write_text(SCALED, encoding="utf-8")
    plain = told(record(tiny_plan(**values(steps=50)), tmp_path / "plain"))
    made = tiny_plan(base=tmp_path, **values(steps=50), precision={"use": "./scaled.py:Scaled"})
    scaled = told(record(made, tmp_path / "scaled"))
    # A power of two: the same bits.
    assert (scaled[-1].noise, scaled[-1].signal) == (plain[-1].noise, plain[-1].signal)


def test_windows_that_are_not_finite_are_left_out(tmp_path):
    plan = tiny_plan(
        train={"steps": 12, "batch": 8, "on_nan": "skip"},
        data={"poisoned": [3]},
        model={"transform": [{"use": "noise-scale"}]},
    )
    found = told(record(plan, tmp_path))
    assert len(found) > 5
    assert all(0 < event.noise < 1e3 for event in found)


def test_a_comparison_of_workers_needs_several(tmp_path):
    plan = tiny_plan(model={"transform": [{"use": "noise-scale", "compare": "workers"}]})
    with pytest.raises(PlanError, match="one data worker") as caught:
        nlpkernel.run(plan, runs_folder=tmp_path)
    assert caught.value.problems[0].code == "NSC001"


def test_layouts_that_divide_gradients_do_not_fit():
    component = NoiseScale()
    assert list(component.misfits(Facts())) == []
    for facts in (Facts(parameter_parts=2, optimizer_parts=2), Facts(optimizer_parts=2)):
        ((name, reason),) = component.misfits(facts)
        assert name == "compare"
        assert "whole gradients" in reason


def test_it_is_light_and_says_what_its_settings_and_codes_are():
    import nlpkernel_noise_scale

    assert not brought(["nlpkernel_noise_scale.component"], ["torch", "numpy"])
    assert without_help(NoiseScale) == []
    assert faults_of_codes(nlpkernel_noise_scale, CODES) == []
