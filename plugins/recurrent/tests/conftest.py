"""What the tests share: models of any settings, filled as the kernel fills them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nlpkernel.components import PRESETS
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.hookspecs.model import Model
from nlpkernel_recurrent.build import build
from nlpkernel_recurrent.component import Recurrent


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def component_of(preset: str = "nano", **changes: Any) -> Recurrent:
    """The component as a plan with this preset and these settings makes it."""
    return Recurrent(**{"preset": preset, **getattr(Recurrent, PRESETS)[preset], **changes})


def structure_of(purpose: str = "lm", vocabulary: int = 17, window: int = 12, **changes: Any) -> Model:
    """A model without values, on the meta device, for three classes where it has any."""
    with torch.device("meta"):
        return build(component_of(**changes).shape(vocabulary, window, purpose, 3))  # type: ignore[arg-type]


def model_of(purpose: str = "lm", *, seed: int = 0, **changes: Any) -> Model:
    """A model with its first values, on the CPU."""
    model = structure_of(purpose, **changes)
    allocate(model.module, torch.device("cpu"), torch.float32)
    fill(model, whole(model.module), seed)
    return model


@pytest.fixture(scope="session")
def component() -> Callable[..., Recurrent]:
    return component_of


@pytest.fixture(scope="session")
def structure() -> Callable[..., Model]:
    return structure_of


@pytest.fixture(scope="session")
def make() -> Callable[..., Model]:
    return model_of
