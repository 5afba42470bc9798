"""Behaviour: the contracts of model, transform and data, and estimates against the truth, asked in a run."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nlpkernel.hookspecs.data import Data
from nlpkernel.plan.fit import estimate
from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.running import base, plan_of, run
from nlpkernel_sdk.conform.subject import Part
from nlpkernel_sdk.conform.training import made, state_of


@check(
    "behaviour.model-structure",
    "nothing is allocated before the model is distributed",
    points=["model", "transform"],
)
def _structure(part: Part) -> None:
    model = _model(part)
    on = {name for name, tensor in model.module.named_parameters() if tensor.device.type != "meta"}
    refuse(f"{name} is not on the meta device" for name in sorted(on))


@check(
    "behaviour.model-anatomy", "layouts and transforms go by the anatomy alone", points=["model", "transform"]
)
def _anatomy(part: Part) -> None:
    model = _model(part)
    names, known = {name for name, _ in model.module.named_parameters()}, set(model.anatomy.parameters)
    modules = {name for name, _ in model.module.named_modules()}
    paths = [*model.anatomy.blocks, *filter(None, (model.anatomy.embedding, model.anatomy.head))]
    wrong = [f"the anatomy knows no parameter {name}" for name in sorted(names - known)]
    wrong += [f"the anatomy has {name}, which is no parameter" for name in sorted(known - names)]
    wrong += [f"the anatomy has {path}, which is no module" for path in paths if path not in modules]
    refuse(wrong)


@check(
    "behaviour.model-initialise",
    "weights are the same on any layout: a function of seed and name",
    points=["model", "transform"],
)
def _initialise(part: Part) -> None:
    model = _model(part)
    named = [*model.module.named_parameters(), *model.module.named_buffers()]
    filled: list[dict[str, Tensor]] = []
    for order in (named, named[::-1]):
        values = {}
        for name, tensor in order:
            value = (
                torch.full(tensor.shape, math.nan, dtype=tensor.dtype) if tensor.is_floating_point() else None
            )
            value = torch.zeros(tensor.shape, dtype=tensor.dtype) if value is None else value
            with torch.no_grad():
                model.initialise(name, value, torch.Generator().manual_seed(len(name)))
            values[name] = value
        filled.append(values)
    wrong = [
        f"{name} is not filled"
        for name, value in filled[0].items()
        if value.is_floating_point() and value.isnan().any()
    ]
    wrong += [
        f"{name} is filled otherwise in another order"
        for name, value in filled[0].items()
        if not torch.equal(value, filled[1][name]) and not value.isnan().any()
    ]
    refuse(wrong)


def _model(part: Part) -> Any:
    base(part)
    # While its data is open.
    return run(part, part.values(), stop_at=1, look=_remade).seen[0]


def _remade(session: Any) -> Any:
    with torch.device("meta"):
        model = session.hooks.pick("create_model")({"run": session.run, "info": session.data.info})
        return session.hooks.transform("transform_model", model, run=session.run)


@check(
    "behaviour.estimate",
    "`check` says what fits, so what it says must be so",
    points=["model", "data", "tokenizer", "optimizer"],
)
def _estimate(part: Part) -> str:
    base(part)
    if not hasattr(part.cls, "estimate"):
        raise NotApplicable("it estimates nothing")
    facts = estimate(plan_of(part, part.values()))
    truth = run(part, part.values(), stop_at=1, look=_truth).seen[0]
    names = {"model": ("parameters", "trainable", "parameter_bytes"), "optimizer": ("optimizer_bytes",)}
    wrong, told = [], []
    for name in names.get(part.point, ("vocabulary", "window")):
        said, real = getattr(facts, name), truth[name]
        if said is None or not real:
            continue
        told.append(f"{name} {said}")
        # A tokenizer that is trained may find fewer entries, and so a model smaller.
        near = (
            real <= said if part.point in ("data", "tokenizer") else abs(said - real) <= 0.02 * real + 64 * 4
        )
        if not near:
            wrong.append(f"{name} is estimated as {said}, and is {real}")
    refuse(wrong)
    return ", ".join(told)


def _truth(session: Any) -> dict[str, int]:
    held = [each.tensor for each in session.held if isinstance(each.tensor, torch.nn.Parameter)]
    state = [value for value in state_of(session.work.optimizer) if value.dim()]
    return {
        "parameters": sum(tensor.numel() for tensor in held),
        "trainable": sum(tensor.numel() for tensor in held if tensor.requires_grad),
        "parameter_bytes": sum(tensor.nbytes for tensor in held),
        "optimizer_bytes": sum(tensor.nbytes for tensor in state),
        "vocabulary": session.data.info.vocabulary,
        "window": session.data.info.window,
    }


@check(
    "behaviour.data-windows",
    "a window is a function of (seed, step): any can be asked at any time",
    points=["data"],
)
def _windows(part: Part) -> None:
    def look(session: Any) -> list[str]:
        data: Data = session.data
        forwards = [_window(data, step) for step in range(4)]
        backwards = [_window(data, step) for step in reversed(range(4))][::-1]
        return [
            f"window {at} is another one where it is asked after later ones"
            for at, (a, b) in enumerate(zip(forwards, backwards, strict=True))
            if not _same(a, b)
        ]

    base(part)
    refuse(run(part, part.values(), stop_at=1, look=look).seen[0])


def _window(data: Data, step: int) -> list[Any]:
    parts = data.window(step)
    batches = [dict(data.microbatch(step, index)) for index in range(len(parts))]
    return [[(part.samples, part.tokens, dict(part.weights)) for part in parts], batches]


def _same(a: list[Any], b: list[Any]) -> bool:
    return a[0] == b[0] and all(
        one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
        for one, other in zip(a[1], b[1], strict=True)
    )


@check(
    "behaviour.data-counts",
    "losses are divided by weights that are known before any forward",
    points=["data"],
)
def _counts(part: Part) -> None:
    def look(session: Any) -> list[str]:
        wrong = []
        for step in range(3):
            for index, part in enumerate(session.data.window(step)):
                batch = session.data.microbatch(step, index)
                rows = {tensor.shape[0] for tensor in batch.values() if tensor.dim()}
                if rows != {part.samples}:
                    wrong.append(
                        f"micro-batch {index} of window {step} has {rows} rows, and says {part.samples}"
                    )
                if len(session.data.names(step, index)) != part.samples:
                    wrong.append(f"micro-batch {index} of window {step} does not name each of its rows")
        return wrong

    base(part)
    refuse(run(part, part.values(), stop_at=1, look=look).seen[0])


@check("behaviour.data-codec", "a version is used without its data", points=["data"])
def _codec(part: Part) -> None:
    def look(session: Any) -> list[str]:
        component = made(part)
        codec = session.run.ask(component, "open_codec", artifacts=dict(session.data.artifacts()))
        info, own = session.data.info, codec.info
        wrong = [
            f"{name} of the codec is {getattr(own, name)!r}, and of the data {getattr(info, name)!r}"
            for name in ("task", "vocabulary", "window", "labels")
            if getattr(own, name) != getattr(info, name)
        ]
        if codec.task.name != session.data.task.name:
            wrong.append(
                f"the codec has the task {codec.task.name!r}, and the data {session.data.task.name!r}"
            )
        return wrong

    base(part)
    refuse(run(part, part.values(), stop_at=1, look=look).seen[0])
