"""What the tests share: models of any settings, filled as the kernel fills them, and a small codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from nlpkernel.components import PRESETS
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.hookspecs.model import Model
from nlpkernel_transformer.build import build
from nlpkernel_transformer.component import Decoder, Encoder, EncoderDecoder, Gpt, Llama

Make = Callable[..., Model]

Made = Decoder | Encoder | EncoderDecoder

COMPONENTS: dict[str, type[Made]] = {
    "gpt": Gpt,
    "llama": Llama,
    "encoder": Encoder,
    "encoder-decoder": EncoderDecoder,
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def component_of(name: str, preset: str = "nano", **changes: Any) -> Made:
    """A component as a plan with this preset and these settings makes it."""
    cls = COMPONENTS[name]
    return cls(**{"preset": preset, **getattr(cls, PRESETS)[preset], **changes})


def structure_of(
    name: str, preset: str = "nano", vocabulary: int = 65, window: int = 32, **changes: Any
) -> Model:
    """A model without values, on the meta device, whose rows have `window` tokens. An encoder is for `purpose`."""
    purpose, labels = changes.pop("purpose", "classification"), changes.pop("labels", 3)
    made = component_of(name, preset, **changes)
    with torch.device("meta"):
        if isinstance(made, Encoder):
            return build(made.shape(vocabulary, window - 1, purpose, labels))
        if isinstance(made, EncoderDecoder):
            return build(made.shape(vocabulary, window - 1))
        return build(made.shape(vocabulary, window))


def model_of(name: str, *, seed: int = 0, **changes: Any) -> Model:
    """A model with its first values, on the CPU."""
    model = structure_of(name, **changes)
    allocate(model.module, torch.device("cpu"), torch.float32)
    fill(model, whole(model.module), seed)
    return model


@pytest.fixture(scope="session")
def component() -> Callable[..., Made]:
    return component_of


@pytest.fixture(scope="session")
def structure() -> Make:
    return structure_of


@pytest.fixture(scope="session")
def make() -> Make:
    return model_of


class Bytes:
    """A codec whose ids are bytes, with an end-of-text id behind them."""

    end: int | None = 256
    info: Any = None
    task: Any = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(one for one in ids if one < 256).decode(errors="replace")


@pytest.fixture(scope="session")
def codec() -> Bytes:
    return Bytes()
