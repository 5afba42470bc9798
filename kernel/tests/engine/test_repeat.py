"""Guarantee 2: the same plan gives the same losses and weights, bit for bit, and leaves nothing behind."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import signal
import threading
import warnings

import numpy
import pytest
import torch

import nlpkernel
from nlpkernel.events import StepCompleted
from nlpkernel_sdk import tiny_values
from nlpkernel_sdk.notes import BOOKS

PLAN = {
    "train": {
        "steps": 12,
        "batch": 8,
        "micro": 3,
        "clip": 1.0,
        "evaluate": {"every": 5},
        "log": {"every": 4},
    },
    "model": {"hidden": 16, "dropout": 0.5},
}

CHILD = """
import json, sys
import nlpkernel
from nlpkernel.events import StepCompleted
values = json.loads(sys.argv[1])
losses = [
    float(event.sums["loss"]).hex()
    for event in nlpkernel.train(nlpkernel.Plan.of(values))
    if isinstance(event, StepCompleted)
]
from nlpkernel import open_model
weights = {name: value.flatten().tolist() for name, value in open_model("runs/child").model.state_dict().items()}
print(json.dumps([losses, weights]))
"""


def hexes(ran):
    return [float(loss).hex() for loss in ran.losses]


def test_twice_in_one_process(bench):
    first = bench.run(**PLAN, name="first")
    # What happens in between is nothing to a run.
    random.random()
    torch.rand(3)
    second = bench.run(**PLAN, name="second")
    assert hexes(first) == hexes(second)
    assert len(first.losses) == 12
    assert first.weights.keys() == second.weights.keys()
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert first.logged("norm") == second.logged("norm")


def test_one_plan_object_can_be_run_twice(tmp_path):
    plan = nlpkernel.Plan.of(tiny_values(**PLAN))
    first = nlpkernel.run(plan, runs_folder=tmp_path / "a")
    second = nlpkernel.run(plan, runs_folder=tmp_path / "b")
    assert first.metrics == second.metrics
    assert first.metrics["validation/loss"] is not None


def test_again_in_new_processes(bench):
    """Each process hashes strings by another salt, and has other addresses."""
    values = tiny_values(**PLAN, name="child", checkpoint=bench.use("Shelf"))
    outputs = []
    for salt in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        folder = bench.folder / salt
        folder.mkdir()
        outputs.append(bench.child(CHILD, json.dumps(values), folder=folder, env=environment).stdout)
    assert outputs[0] == outputs[1]
    losses, weights = json.loads(outputs[0])
    here = bench.run(**PLAN, name="child", checkpoint=bench.use("Shelf"))
    assert [float(event.sums["loss"]).hex() for event in here.of(StepCompleted)] == losses
    assert {name: value.flatten().tolist() for name, value in here.weights.items()} == weights


def test_another_seed_is_another_run(bench):
    sections = {**PLAN, "train": {**PLAN["train"], "seed": 1}}
    assert hexes(bench.run(**PLAN, name="a")) != hexes(bench.run(**sections, name="b"))


def test_the_number_of_micro_batches_does_not_move_the_data(bench):
    sections = {"model": {"hidden": 4}, "train": {"steps": 10, "batch": 8}}
    whole = bench.run(name="whole", **sections)
    cut = bench.run(name="cut", **{**sections, "train": {**sections["train"], "micro": 1}})
    assert cut.losses == [pytest.approx(loss, rel=1e-5) for loss in whole.losses]


class Traces:
    """What a run could leave in its process."""

    def __init__(self) -> None:
        logger = logging.getLogger("nlpkernel")
        told = logging.getLogger("py.warnings")
        self.found = {
            "python": random.getstate(),
            "numpy": str(numpy.random.get_state()),
            "torch": torch.get_rng_state().tolist(),
            "threads of torch": torch.get_num_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
            "filling": torch.utils.deterministic.fill_uninitialized_memory,
            "default type": torch.get_default_dtype(),
            "gradients": torch.is_grad_enabled(),
            "handlers": (logger.handlers[:], logger.level, logger.propagate),
            "handlers of warnings": (told.handlers[:], told.level, told.propagate),
            "root": (logging.getLogger().handlers[:], logging.getLogger().level),
            "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
            "warnings": (warnings.showwarning, warnings.filters[:]),
            "threads": threading.enumerate(),
            "files": sorted(os.readlink(f"/proc/self/fd/{each}") for each in _descriptors()),
            "folder": os.getcwd(),
            "environment": dict(os.environ),
        }


def _descriptors() -> list[str]:
    gc.collect()
    return [each for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")]


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("end", ["finished", "failed", "closed", "refused"])
def test_a_run_leaves_nothing_behind(bench, end, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    train = {**PLAN["train"], "threads": 2, "seed": 7, "deterministic": True}
    data = {"poisoned": list(range(64))} if end == "failed" else {}
    if end == "refused":
        train |= {"partial": "drop", "batch": 1000}
    plan = nlpkernel.Plan.of(
        tiny_values(**{**PLAN, "train": train}, data=data, checkpoint=bench.use("Shelf", every=2))
    )
    torch.set_num_threads(1)
    before = Traces().found
    events = nlpkernel.train(plan, runs_folder=bench.folder)
    if end == "closed":
        for _ in range(8):
            next(events)
        events.close()
    elif end == "finished":
        assert list(events)
    else:
        with pytest.raises(nlpkernel.errors.NlpkernelError):
            list(events)
    after = Traces().found
    assert {name for name in before if before[name] != after[name]} == set()


def test_the_generators_are_those_of_the_seed_while_it_runs(bench):
    bench.run(bench.use("Draws"), name="a", train={"steps": 2, "seed": 5})
    first = BOOKS["draws"]
    bench.run(bench.use("Draws"), name="b", train={"steps": 2, "seed": 5})
    assert BOOKS["draws"] == first
    bench.run(bench.use("Draws"), name="c", train={"steps": 2, "seed": 6})
    assert all(one != other for one, other in zip(BOOKS["draws"][0], first[0], strict=True))


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_deterministic_flag_is_that_of_the_plan(bench, deterministic):
    plan = nlpkernel.Plan.of(tiny_values(train={"steps": 2, "deterministic": deterministic, "threads": 2}))
    for event in nlpkernel.train(plan, runs_folder=bench.folder):
        if isinstance(event, StepCompleted):
            assert torch.are_deterministic_algorithms_enabled() is deterministic
            assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 1
