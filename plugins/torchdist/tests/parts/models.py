"""Small models, batches, and what one process makes of them, for the tests of cutting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from nlpkernel.components import PRESETS
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.hookspecs.model import Model
from nlpkernel.state import Kind, local
from nlpkernel_text.lm import LanguageModelling
from nlpkernel_transformer.build import build
from nlpkernel_transformer.component import Gpt, Llama

CPU = torch.device("cpu")
TASK = LanguageModelling()
WINDOW = 12


def structure(name: str, vocabulary: int = 61, **changes: Any) -> Model:
    """A small transformer on the meta device. Its first weights are large, so that every path counts."""
    cls = {"gpt": Gpt, "llama": Llama}[name]
    small = {"preset": "nano", "layers": 2, "heads": 4, "width": 32, "init_std": 0.2}
    if name == "llama":
        small["kv_heads"] = 2
    component = cls(**{**getattr(cls, PRESETS)["nano"], **small, **changes})
    with torch.device("meta"):
        return build(component.shape(vocabulary, WINDOW))


def filled(model: Model, seed: int = 3) -> Model:
    """The model with its first values, whole."""
    allocate(model.module, CPU, torch.float32)
    fill(model, list(whole(model.module)), seed)
    return model


def batches(
    count: int, vocabulary: int = 61, *, isolated: bool = False, rows: int = 2
) -> list[dict[str, Tensor]]:
    """Micro-batches of language modelling; every third label does not count."""
    generator = torch.Generator().manual_seed(11)
    made = []
    for _ in range(count):
        drawn = torch.randint(vocabulary, (rows, WINDOW + 1), generator=generator)
        labels = drawn[:, 1:].clone()
        labels[:, ::3] = -100
        batch = {"tokens": drawn[:, :-1].contiguous(), "labels": labels}
        if isolated:
            inside = torch.arange(WINDOW).expand(rows, WINDOW)
            batch["documents"] = (inside >= 5).long()
            batch["positions"] = torch.where(inside >= 5, inside - 5, inside)
        made.append(batch)
    return made


def sums_and_gradients(
    model: Model, work: Iterable[Mapping[str, Tensor]], share: float
) -> tuple[float, dict[str, Tensor]]:
    """The summed loss of micro-batches in one process, and the gradient of every parameter."""
    total = 0.0
    for batch in work:
        (term,) = TASK.loss(model.module(**TASK.inputs(batch)), batch)
        (term.sum * share).backward()
        total += float(term.sum.detach())
    return total, {name: each.grad for name, each in model.module.named_parameters() if each.grad is not None}


def deviation(found: Tensor, wanted: Tensor, kind: Kind) -> float:
    """The largest difference of a worker's tensor from its part of the whole, over the largest element of the whole."""
    part = local(wanted, kind)
    if found.shape != part.shape:
        raise AssertionError(f"{tuple(found.shape)} instead of {tuple(part.shape)}")
    if not part.numel():
        return 0.0
    return float((found - part).abs().max() / wanted.abs().max())
