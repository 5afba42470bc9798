"""The optimizers and schedules through the public way in: a plan that is run, stopped and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nlpkernel
from nlpkernel.errors import PlanError
from nlpkernel.events import Logged
from nlpkernel_sdk.plans import tiny_plan

TAGS = """
import attrs
from nlpkernel import component, hookimpl

@component
class Tags:
    @hookimpl
    def transform_model(self, model):
        facts = {
            name: attrs.evolve(known, tags=frozenset({"mlp"}) if known.decay else known.tags)
            for name, known in model.anatomy.parameters.items()
        }
        return attrs.evolve(model, anatomy=attrs.evolve(model.anatomy, parameters=facts))
"""


@pytest.fixture(autouse=True)
def tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform that tags the matrices of the tiny model, for Muon."""
    (tmp_path / "tags.py").write_text(TAGS)
    monkeypatch.chdir(tmp_path)


def plan(**optimizer: Any) -> nlpkernel.Plan:
    return tiny_plan(
        train={"steps": 10, "evaluate": {"every": 1}},
        model={"hidden": 5, "transform": [{"use": "./tags.py:Tags"}]},
        optimizer=optimizer,
        checkpoint={"use": "store", "every": 1000},
    )


def logged(made: nlpkernel.Plan, folder: Path, steps: int = 10, resume: str | None = None) -> list[Logged]:
    """What is logged until so many steps are done; then the run is closed as an interrupted one is."""
    events = nlpkernel.train(made, runs_folder=folder, resume=resume)
    heard: list[Logged] = []
    for event in events:
        if isinstance(event, Logged):
            heard.append(event)
            if event.progress.step == steps:
                break
    events.close()  # type: ignore[attr-defined]
    return heard


def test_case_r1_the_rate_goes_on_where_it_was(tmp_path: Path) -> None:
    made = plan(use="adamw", lr=1e-5, schedule={"use": "linear"})
    heard = logged(made, tmp_path, 5) + logged(made, tmp_path, resume="newest")
    assert [event.metrics["rate"] for event in heard] == [1e-5 * (1 - k / 10) for k in range(10)]


@pytest.mark.parametrize(
    "optimizer",
    [
        {"use": "adamw", "schedule": {"use": "cosine", "warmup": 3}},
        {"use": "adamw", "fused": "off", "schedule": {"use": "wsd", "warmup_fraction": 0.2}},
        {"use": "sgd", "nesterov": True, "schedule": {"use": "inverse-sqrt"}},
        {"use": "lion"},
        {"use": "adafactor", "schedule": {"use": "plateau", "patience": 0, "threshold": 0.9, "cooldown": 1}},
        {"use": "muon", "schedule": {"use": "linear"}},
    ],
    ids=lambda optimizer: optimizer["use"],
)
def test_a_resumed_run_is_the_unbroken_one(tmp_path: Path, optimizer: dict[str, Any]) -> None:
    made = plan(**{"lr": 0.01, **optimizer})
    whole = logged(made, tmp_path / "whole")
    broken = logged(made, tmp_path / "broken", 4) + logged(made, tmp_path / "broken", resume="newest")
    assert [event.metrics for event in broken] == [event.metrics for event in whole]
    assert len({event.metrics["loss"] for event in whole}) == 10


def test_check_finds_what_is_wrong_with_settings_in_one_go() -> None:
    schedule = {"use": "wsd", "warmup": -1, "shape": "sqrd"}
    with pytest.raises(PlanError) as caught:
        plan(use="adamw", lr=0.0, betas=[0.9, 1.0], fused="maybe", schedule=schedule)
    text = str(caught.value)
    for place in ("lr", "betas[1]", "fused", "schedule.warmup", "schedule.shape"):
        assert f"optimizer.{place} is" in text
    with pytest.raises(PlanError, match=r"optimizer\.schedule.*given once"):
        plan(use="adamw", lr=0.1, schedule={"use": "wsd", "decay": 5, "decay_fraction": 0.5})
    with pytest.raises(PlanError, match="nesterov"):
        plan(use="sgd", lr=0.1, momentum=0.0, nesterov=True)
