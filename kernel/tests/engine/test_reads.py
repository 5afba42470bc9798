"""Guarantee 7: between two log intervals the host reads nothing from the device.

What torch calls to give a number to Python is counted: on an accelerator each such call waits for everything before.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import nlpkernel
from nlpkernel.events import StepCompleted
from nlpkernel_sdk import tiny_values

STEPS, EVERY = 20, 10


class Reads(TorchDispatchMode):
    """Counts what reads a tensor on the host, by the step that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 1
        self.counts: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if name.startswith(
            ("aten._local_scalar_dense", "aten.is_nonzero", "aten.item", "aten.equal", "aten.nonzero")
        ):
            self.counts[self.step] += 1
        return func(*args, **(kwargs or {}))


def lists(monkeypatch: pytest.MonkeyPatch, reads: Reads) -> None:
    """Count `tolist` and `numpy` too, which no operator shows."""
    for name in ("tolist", "numpy"):
        original = getattr(torch.Tensor, name)

        def counted(self: torch.Tensor, *args: Any, original: Any = original, **options: Any) -> Any:
            if self.dtype != torch.int64:  # Row numbers are the data's own, and on the host.
                reads.counts[reads.step] += 1
            return original(self, *args, **options)

        monkeypatch.setattr(torch.Tensor, name, counted)


def counted(bench, monkeypatch, **sections) -> dict[int, int]:
    """Reads of each step but the first, in which torch sets itself up, and the last, which is evaluated."""
    sections["train"] = {
        "steps": STEPS,
        "clip": 1.0,
        "log": {"every": EVERY},
        "batch": 8,
        "micro": 4,
        **sections.get("train", {}),
    }
    plan = nlpkernel.Plan.of(tiny_values(**sections))
    reads = Reads()
    lists(monkeypatch, reads)
    with reads:
        for event in nlpkernel.train(plan, runs_folder=bench.folder):
            if isinstance(event, StepCompleted):
                reads.step = event.progress.step + 1
    return {step: reads.counts[step] for step in range(2, STEPS)}


def expected(each: int, due: int) -> dict[int, int]:
    return {step: each + (due if step % EVERY == 0 else 0) for step in range(2, STEPS)}


def test_a_fused_optimizer_is_read_once_an_interval(bench, monkeypatch):
    assert counted(bench, monkeypatch) == expected(0, 1)


@pytest.mark.parametrize("hook", ["Halver", "Backward", "Counter"])
def test_hooks_cost_no_read(bench, monkeypatch, hook):
    assert counted(bench, monkeypatch, monitor=[bench.use(hook)]) == expected(0, 1)


@pytest.mark.parametrize(
    "sections",
    [
        {"train": {"on_nan": "skip"}},
        {"optimizer": {"kind": "sgd"}},
        {"optimizer": {"kind": "sgd", "momentum": 0.9}, "train": {"on_nan": "rollback"}},
    ],
    ids=["policy skip", "an optimizer that is not fused", "rollback and not fused"],
)
def test_skip_and_other_optimizers_pay_one_read_a_step(bench, monkeypatch, sections):
    assert counted(bench, monkeypatch, **sections) == expected(1, 1)


def test_a_loss_scale_pays_one_read_a_step(bench, monkeypatch):
    assert counted(bench, monkeypatch, precision=bench.use("Scaled")) == expected(1, 1)


def test_the_counter_counts(bench, monkeypatch):
    """A test that cannot see a read proves nothing."""
    reads = Reads()
    lists(monkeypatch, reads)
    with reads:
        value = torch.ones(())
        value.item()
        float(value)
        bool(value)
        int(value)
        value.tolist()
        torch.ones(3).tolist()
        value.numpy()
        if value > 0:
            pass
    assert reads.counts[1] >= 8
