"""Metrics are those of the split, whatever the batches; and only counts are kept of them (cases E2 and E3)."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import nlpkernel
from nlpkernel.events import Evaluated
from nlpkernel_sdk import tiny_plan


@pytest.mark.parametrize("micro", [1, 2])
def test_case_e2_token_losses_are_weighted_by_tokens(bench, micro):
    ran = bench.sums(
        [2.0, 90.0], [1.0, 9.0], train={"steps": 1, "batch": 2, "micro": micro}, optimizer={"lr": 1e-9}
    )
    assert ran.of(Evaluated)[0].metrics["loss"] == pytest.approx(9.2, abs=1e-6)


@pytest.mark.parametrize("micro", [256, 100, 522])
def test_case_e2_accuracies_of_uneven_batches(bench, micro):
    """.7, .8 and .9 right of 256, 256 and 10 rows: 0.752874 of all 522."""
    right = [1.0] * 179 + [0.0] * 77 + [1.0] * 205 + [0.0] * 51 + [1.0] * 9 + [0.0]
    exact = (179 + 205 + 9) / 522
    train = {"steps": 1, "batch": 522, "micro": micro}
    ran = bench.sums(right, [1.0] * 522, train=train, optimizer={"lr": 1e-9})
    assert ran.of(Evaluated)[0].metrics["loss"] == pytest.approx(exact, abs=1e-6)
    assert exact == pytest.approx(0.752874, abs=1e-6)


@pytest.mark.parametrize("rows", [1, 3, 10, 64])
def test_case_e2_metrics_do_not_depend_on_the_batch(bench, rows):
    """The last of 37 rows make a batch of their own."""
    plan = {"data": {"validation": 37, "masked": [65, 66]}, "model": {"value": 0.1}}
    train = {"steps": 1, "batch": 64, "micro": rows}
    whole = bench.run(name="whole", train={**train, "micro": 64}, **plan)
    ran = bench.run(train=train, **plan)
    assert ran.of(Evaluated)[0].metrics["loss"] == pytest.approx(
        whole.of(Evaluated)[0].metrics["loss"], rel=1e-6
    )


def test_a_split_in_which_nothing_counts_has_no_value(bench):
    ran = bench.run(data={"validation": 3, "masked": [64, 65, 66]})
    assert ran.of(Evaluated)[0].metrics == {"loss": None}
    assert ran.report.best is None


class Alive(TorchDispatchMode):
    """The most tensors with so many numbers that were there at a time."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.numbers, self.now, self.most = numbers, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.numel() == self.numbers:
            self.now += 1
            self.most = max(self.most, self.now)
            weakref.finalize(made, self._gone)
        return made

    def _gone(self) -> None:
        self.now -= 1


def test_case_e3_no_batch_s_outputs_outlive_their_batch(bench):
    """The outputs of 40 batches are never there together: at most those of two, and what the loss makes of them."""
    plan = tiny_plan(
        data={"rows": 512, "validation": 40 * 512, "width": 1},
        train={"steps": 1, "batch": 512},
        model={"value": 0.1},
    )
    with Alive(512) as alive:
        for event in nlpkernel.train(plan, runs_folder=bench.folder):
            if isinstance(event, Evaluated):
                assert event.samples == 40 * 512
    assert 0 < alive.most < 20


def test_a_model_is_in_evaluation_mode_during_an_evaluation_and_only_then(bench):
    """Dropout would make two evaluations of the same weights differ."""
    train = {"steps": 2, "evaluate": {"every": 1}}
    ran = bench.run(train=train, model={"hidden": 16, "dropout": 0.9}, optimizer={"lr": 1e-30})
    first, second = ran.of(Evaluated)
    assert first.metrics == second.metrics
    loss = bench.run(
        name="other", train=train, model={"hidden": 16, "dropout": 0.0}, optimizer={"lr": 1e-30}
    ).losses
    assert ran.losses != loss
