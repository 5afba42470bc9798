"""Guarantee 4: another layout, the same loss curve, to 2e-6 relative over 50 steps, and weights to 1e-4."""

from __future__ import annotations

import pytest
import torch

#: Name to workers and changes of the plan.
LAYOUTS = {
    "accumulation 1": (1, {"train": {"micro": 8}}),
    "accumulation 2": (1, {"train": {"micro": 4}}),
    "data 2": (2, {}),
    "data 2, accumulation 1": (2, {"train": {"micro": 4}}),
    "data 2, ragged": (2, {"train": {"micro": 3}}),
    "data 4": (4, {}),
    "data 4, ragged": (4, {"train": {"micro": 3}}),
    "zero 1": (2, {"communicator": {"shard": 1}}),
    "zero 2": (2, {"communicator": {"shard": 2}}),
    "zero 3": (2, {"communicator": {"shard": 3}}),
    "zero 3, each micro-batch": (2, {"communicator": {"shard": 3, "reduce": "microbatch"}}),
    "zero 3, 4 workers, ragged": (4, {"communicator": {"shard": 3}, "train": {"micro": 3}}),
    "tensor 2": (2, {"communicator": {"tensor": 2}}),
    "tensor 2, accumulation 1": (2, {"communicator": {"tensor": 2}, "train": {"micro": 8}}),
    "pipeline 2": (2, {"communicator": {"pipeline": 2}}),
    "pipeline 2, gpipe": (2, {"communicator": {"pipeline": 2, "schedule": "gpipe"}}),
    "pipeline 2, interleaved": (2, {"communicator": {"pipeline": 2, "schedule": "interleaved"}}),
    "data 2 x tensor 2": (4, {"communicator": {"tensor": 2}}),
    "data 2 x pipeline 2": (4, {"communicator": {"pipeline": 2}}),
    "zero 3, offload": (2, {"communicator": {"shard": 3, "offload": True}}),
}
#: More of them, over fewer steps.
COMPOSED = {
    "tensor 2 x pipeline 2": (4, {"communicator": {"tensor": 2, "pipeline": 2}}),
    "zero 1 x tensor 2": (4, {"communicator": {"tensor": 2, "shard": 1}}),
    "zero 3 x tensor 2": (4, {"communicator": {"tensor": 2, "shard": 3}}),
    "zero 1 x pipeline 2": (4, {"communicator": {"pipeline": 2, "shard": 1}}),
}
FEW = {"train": {"steps": 12}}


def assert_same_curve(ran, reference, steps=50):
    assert len(ran.losses) == len(reference.losses) == steps
    worst = max(abs(a - b) / abs(b) for a, b in zip(ran.losses, reference.losses, strict=True))
    assert worst <= 2e-6, f"losses differ by {worst:.1e}"
    for name, value in reference.metrics.items():
        assert ran.metrics[name] == pytest.approx(value, rel=2e-6)
    assert ran.weights.keys() == reference.weights.keys()
    gap = max(float((ran.weights[name] - each).abs().max()) for name, each in reference.weights.items())
    assert gap <= 1e-4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_curve_of_one_process(lab, layout):
    workers, changes = LAYOUTS[layout]
    assert_same_curve(lab.run(layout, workers, **changes), lab.run("one"))


@pytest.mark.parametrize("layout", COMPOSED)
def test_compositions_give_the_curve_of_one_process(lab, layout):
    workers, changes = COMPOSED[layout]
    assert_same_curve(lab.run(layout, workers, **changes, **FEW), lab.run("one, few", **FEW), steps=12)


def test_the_reference_learns(lab):
    """Or equal curves would say nothing."""
    ran = lab.run("one")
    assert ran.losses[-1] < 0.85 * ran.losses[0]
    assert all(torch.isfinite(each).all() for each in ran.weights.values())
