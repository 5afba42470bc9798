"""The precisions through the public way in: a plan that is run, stopped and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import nlpkernel
from nlpkernel.errors import PlanError
from nlpkernel.events import Event, Logged, RunStarted, WindowSkipped
from nlpkernel_sdk.plans import tiny_plan


def plan(**precision: Any) -> nlpkernel.Plan:
    return tiny_plan(
        train={"steps": 12},
        model={"hidden": 5},
        optimizer={"lr": 0.01, "decay": "linear"},
        precision=precision,
        checkpoint={"use": "store", "every": 1000},
    )


def events_of(made: nlpkernel.Plan, folder: Path, steps: int = 12, resume: str | None = None) -> list[Event]:
    """What happens until so many steps are done; then the run is closed as an interrupted one is."""
    events = nlpkernel.train(made, runs_folder=folder, resume=resume)
    heard = []
    for event in events:
        heard.append(event)
        if isinstance(event, Logged) and event.progress.step == steps:
            break
    events.close()  # type: ignore[attr-defined]
    return heard


def logged(events: list[Event]) -> list[Any]:
    return [(event.progress, event.metrics) for event in events if isinstance(event, Logged)]


@pytest.mark.parametrize(
    "precision",
    [
        {"use": "fp32"},
        {"use": "bf16"},
        {"use": "bf16", "parameters": "bf16"},
        {"use": "fp16", "interval": 3},
        {"use": "auto"},
    ],
    ids=str,
)
def test_a_resumed_run_is_the_unbroken_one(tmp_path: Path, precision: dict[str, Any]) -> None:
    made = plan(**precision)
    whole = events_of(made, tmp_path / "whole")
    broken = events_of(made, tmp_path / "broken", 5) + events_of(made, tmp_path / "broken", resume="newest")
    assert logged(broken) == logged(whole)
    assert not torch.is_autocast_enabled("cpu")
    losses = [metrics["loss"] for _, metrics in logged(whole)]
    assert losses[-1] < losses[0]
    started = next(event for event in whole if isinstance(event, RunStarted))
    assert precision["use"] in (started.precision, "auto")


def test_case_r1_an_overflow_moves_neither_schedule_nor_count_before_and_after_a_resume(
    tmp_path: Path,
) -> None:
    made = plan(use="fp16", scale=2.0**22, interval=3)
    whole = events_of(made, tmp_path / "whole")
    broken = events_of(made, tmp_path / "broken", 3) + events_of(made, tmp_path / "broken", resume="newest")
    skipped = [event.step for event in whole if isinstance(event, WindowSkipped)]
    assert skipped == [event.step for event in broken if isinstance(event, WindowSkipped)]
    assert len(skipped) > 2
    assert min(skipped) < 3 <= max(skipped), "some before and some after the resume"
    assert all(event.reason == "overflow" for event in whole if isinstance(event, WindowSkipped))
    for events in (whole, broken):
        applied = 0
        for progress, metrics in logged(events):
            applied += progress.step - 1 not in skipped
            assert progress.updates == applied
            if progress.step - 1 not in skipped:
                assert metrics["rate"] == 0.01 * (1 - (applied - 1) / 12)
    assert logged(broken) == logged(whole)


def test_check_finds_what_is_wrong_with_settings_in_one_go() -> None:
    with pytest.raises(PlanError) as caught:
        plan(use="fp16", scale=0.0, growth=1.0, backoff=1.0, interval=0)
    for name in ("scale", "growth", "backoff", "interval"):
        assert f"precision.{name} is" in str(caught.value)
