"""Behaviour: the contracts of optimizer, schedule and precision, asked directly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nlpkernel.context import Run
from nlpkernel.hookspecs.model import ParameterGroup
from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.running import base, fresh, plan_of, run
from nlpkernel_sdk.conform.subject import Part
from nlpkernel_sdk.testing import make_run


def made(part: Part) -> Any:
    """A fresh instance, as its plan makes it."""
    base(part)
    return part.found(plan_of(part, part.values()))


def context(part: Part, **train: Any) -> Run:
    """A run without an engine, on the CPU."""
    run = make_run(fresh(), **train)
    run.device = torch.device("cpu")
    return run


def _optimizer(part: Part, tensors: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    groups = [
        ParameterGroup(names=[name], tensors=[tensor], decay=tensor.dim() > 1, tags=frozenset({"mlp"}))
        for name, tensor in tensors.items()
    ]
    optimizer: torch.optim.Optimizer = context(part).ask(made(part), "create_optimizer", groups=groups)
    return optimizer


def _tensors(*shapes: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        f"p{at}": torch.nn.Parameter(torch.randn(shape, generator=generator))
        for at, shape in enumerate(shapes)
    }


def _step(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
) -> None:
    for name, tensor in tensors.items():
        tensor.grad = gradients[name].clone()
    optimizer.step()


@check(
    "behaviour.optimizer-groups",
    "rates, saving and servers go by the groups and their names",
    points=["optimizer"],
)
def _groups(part: Part) -> None:
    tensors = _tensors((4, 3), (4, 3))
    groups = [
        ParameterGroup(
            names=list(tensors), tensors=list(tensors.values()), decay=True, tags=frozenset({"mlp"})
        )
    ]
    optimizer = context(part).ask(made(part), "create_optimizer", groups=groups)
    names = [list(group.get("names", ())) for group in optimizer.param_groups]
    if sorted(name for own in names for name in own) != ["p0", "p1"]:
        refuse([f"the param groups name {names}, and the parameters are p0 and p1"])
    for group in optimizer.param_groups:
        own = [tensors[name] for name in group["names"]]
        if len(own) != len(group["params"]) or any(
            a is not b for a, b in zip(own, group["params"], strict=True)
        ):
            refuse(["the names of a param group are not those of its parameters, in order"])
        if not group.get("lr", 0) > 0:
            refuse([f"a param group has the rate {group.get('lr')!r}"])


@check(
    "behaviour.optimizer-empty-group",
    "a worker may hold nothing of a group, which stays all the same",
    points=["optimizer"],
)
def _empty_group(part: Part) -> None:
    counts = []
    for names in (["p1"], []):
        tensors = _tensors((4, 3), (4, 3))
        groups = [
            ParameterGroup(
                names=own, tensors=[tensors[name] for name in own], decay=decay, tags=frozenset({"mlp"})
            )
            for own, decay in ((["p0"], True), (names, False))
        ]
        optimizer = context(part).ask(made(part), "create_optimizer", groups=groups)
        counts.append(len(optimizer.param_groups))
    # It may put several of ours together, as long as all workers do so alike.
    if counts[0] != counts[1]:
        refuse([f"it makes {counts[0]} param groups, and {counts[1]} where one of ours is empty"])


@check(
    "behaviour.optimizer-need",
    "elementwise: a part of a tensor is updated as it is within the whole",
    points=["optimizer"],
)
def _need(part: Part) -> None:
    if getattr(part.cls, "need", "whole_tensor") != "elementwise":
        raise NotApplicable("it needs whole tensors")
    whole = _tensors((6, 4))
    halves = {
        f"h{at}": torch.nn.Parameter(half.detach().clone()) for at, half in enumerate(whole["p0"].chunk(2))
    }
    one, other = _optimizer(part, whole), _optimizer(part, halves)
    generator = torch.Generator().manual_seed(4)
    for _ in range(3):
        gradient = torch.randn(6, 4, generator=generator)
        gradient[3:] *= 100
        _step(one, whole, {"p0": gradient})
        _step(other, halves, dict(zip(halves, gradient.chunk(2), strict=True)))
    together = torch.cat([half.detach() for half in halves.values()])
    if not torch.allclose(whole["p0"].detach(), together, rtol=1e-6, atol=1e-7):
        refuse(["need is elementwise, and two halves are updated otherwise than the whole"])


@check(
    "behaviour.optimizer-found-inf", "who honours found_inf leaves everything as it was", points=["optimizer"]
)
def _found_inf(part: Part) -> None:
    tensors = _tensors((4, 3))
    optimizer: Any = _optimizer(part, tensors)
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise NotApplicable("it does not claim to honour found_inf")
    _step(optimizer, tensors, {"p0": torch.ones(4, 3)})
    before = [tensors["p0"].detach().clone(), *(each.clone() for each in state_of(optimizer))]
    optimizer.found_inf = torch.ones(())
    _step(optimizer, tensors, {"p0": torch.full((4, 3), math.nan)})
    after = [tensors["p0"].detach(), *state_of(optimizer)]
    if len(before) != len(after) or any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)):
        refuse(["it claims to honour found_inf, and a step with it changes weights or state"])


def state_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Tensors of an optimizer's state."""
    return [value for own in optimizer.state.values() for value in own.values() if isinstance(value, Tensor)]


@check("behaviour.optimizer-lazy", "parameters without a gradient stay as they are", points=["optimizer"])
def _lazy(part: Part) -> None:
    tensors = _tensors((4, 3), (3,))
    optimizer = _optimizer(part, tensors)
    before = tensors["p1"].detach().clone()
    tensors["p0"].grad = torch.ones(4, 3)
    optimizer.step()
    if not torch.equal(before, tensors["p1"].detach()):
        refuse(["a parameter without a gradient was changed"])


def _factors(session: Any) -> tuple[list[float], list[float]]:
    factor = session.work.schedule.factor
    return [factor(update) for update in range(25)], [factor(update) for update in reversed(range(25))][::-1]


@check("behaviour.schedule", "the rate is a function of the number of the update", points=["schedule"])
def _schedule(part: Part) -> None:
    base(part)
    # In a run, for one that learns from evaluations asks whether there are any.
    forwards, backwards = run(part, part.values(), stop_at=1, look=_factors).seen[0]
    wrong = [
        f"factor({at}) is {value!r}"
        for at, value in enumerate(forwards)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0
    ]
    if forwards != backwards:
        wrong.append("factor gives other values where it is asked in another order")
    refuse(wrong)


@check("behaviour.precision", "unscaling gives back what scaling took", points=["precision"])
def _precision(part: Part) -> None:
    precision = context(part).ask(made(part), "create_precision")
    loss = precision.scale(torch.tensor(2.0))
    gradients = [torch.full((3,), float(loss))]
    precision.unscale(gradients)
    wrong = (
        []
        if torch.allclose(gradients[0], torch.full((3,), 2.0))
        else [f"2 comes back as {float(gradients[0][0])}"]
    )
    if not precision.scaled and float(loss) != 2.0:
        wrong.append("scaled is False, and a loss is scaled")
    wrong += [
        f"{name} is no torch.dtype"
        for name in ("parameter", "reduce", "output")
        if not isinstance(getattr(precision, name), torch.dtype)
    ]
    # It may be the same object each time, and is entered once for each micro-batch.
    for _ in range(2):
        with precision.autocast():
            pass
    refuse(wrong)
