"""What the tests share: a run without an engine, and text opened for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nlpkernel.context import Run
from nlpkernel.events import Event, Notice
from nlpkernel.plan.train import Train
from nlpkernel_text.component import Text
from nlpkernel_text.data import PackedData, TextData
from nlpkernel_text.reading.components import Auto
from nlpkernel_text.samplers.components import Order, Random, Shuffle
from nlpkernel_text.task import Lm
from nlpkernel_text.tokenizers.components import Bytes

torch.set_num_threads(1)


#: What a plan would have chosen where it says nothing.
COMPONENTS: dict[str, Any] = {
    "format": Auto(),
    "sampling": Shuffle(),
    "tokenizer": Bytes(),
    "task": Lm(),
}
SAMPLERS: dict[Any, Any] = {"shuffle": Shuffle(), "order": Order(), "random": Random()}


class Heard:
    """What a run told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Notice)]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def make_run(tmp_path: Path, heard: Heard) -> Callable[..., Run]:
    def make(**train: Any) -> Run:
        run = Run(name="test", folder=tmp_path / "run", cache=tmp_path / "cache", train=Train(**train))
        run.bus.on(Event, heard.events.append)
        return run

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


@pytest.fixture
def open_text(make_run: Callable[..., Run]) -> Callable[..., TextData]:
    """Open text: settings by name, those of [train] in `train`; bytes and no validation if not said otherwise."""

    def make(
        *paths: Path, train: dict[str, Any] | None = None, run: Run | None = None, **values: Any
    ) -> TextData:
        values = {**COMPONENTS, "validation": 0.0, **values}
        values["sampling"] = SAMPLERS.get(values["sampling"], values["sampling"])
        if values.get("validation_paths"):
            values["validation"] = None
        text = Text(paths=paths, **values)
        assert not list(text.check_settings())
        data = text.open_data(run or make_run(**(train or {})))
        assert isinstance(data, PackedData)
        return data

    return make
