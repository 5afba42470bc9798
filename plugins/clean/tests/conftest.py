from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.components import PRESETS
from nlpkernel.context import Run
from nlpkernel.hookspecs.stage import Documents, Outcome, Stage
from nlpkernel.plan.train import Train

Make = Callable[..., Stage]


def documents(
    texts: Sequence[str], first: int = 0, columns: Mapping[str, Sequence[Any]] | None = None
) -> Documents:
    """Documents as a stage gets them."""
    names = [f"some/texts.jsonl:{first + at + 1}" for at in range(len(texts))]
    return Documents(texts, columns or {}, names)


def left(stage: Stage, texts: Sequence[str], batch: int = 0) -> list[str]:
    """The texts that are left of these, in batches."""
    kept: list[str] = []
    step = batch or max(1, len(texts))
    for first in range(0, len(texts), step):
        given = texts[first : first + step]
        outcome = stage.apply(documents(given, first))
        made = given if outcome.texts is None else outcome.texts
        kept += [text for at, text in enumerate(made) if at not in outcome.dropped and text]
    return kept


def one(stage: Stage, text: str, **columns: Any) -> tuple[str, Outcome]:
    """What became of a single text."""
    outcome = stage.apply(documents([text], columns={name: [value] for name, value in columns.items()}))
    return (text if outcome.texts is None else outcome.texts[0]), outcome


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(name="test", folder=tmp_path, cache=tmp_path, train=Train())


@pytest.fixture
def make(run: Run) -> Make:
    """A stage from a component class and its settings, over those of its preset."""

    def build(kind: type, **settings: Any) -> Stage:
        presets = getattr(kind, PRESETS)
        preset = presets.get(settings.get("preset", "gopher"), {})
        made = kind(**{**preset, **settings})
        check = getattr(made, "check_settings", None)
        assert check is None or not list(check())
        return run.ask(made, "create_stage")  # type: ignore[no-any-return]

    return build
