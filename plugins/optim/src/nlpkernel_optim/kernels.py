"""torch's fused kernels: which devices have them, and what else can be made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from nlpkernel.errors import TrainingError, fail
from nlpkernel_optim.base import READS, TorchGroup

if TYPE_CHECKING:
    from nlpkernel.context import Run

#: Device types for which torch has fused SGD and AdamW.
FUSED_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})

#: Types for which the fused SGD of torch 2.13 on the CPU gives wrong values: it skips whole vector registers (pytorch
#: issue 191763; 2.14.1 is right). Its fused AdamW is right.
LOW = frozenset({torch.bfloat16, torch.float16})

#: Elements that one call takes at a time: what fits the caches of a CPU, and few launches elsewhere.
_BATCH = {"cpu": 1 << 18}
_BATCH_ELSEWHERE = 1 << 26


def lacking(groups: Sequence[TorchGroup], name: str) -> str | None:
    """Why the optimizer `name` cannot be fused for these parameters: a clause, or None where it can."""
    for group in groups:
        for path, tensor in zip(group["names"], group["params"], strict=True):
            if tensor.device.type not in FUSED_DEVICES:
                return f"torch has no fused kernel for the device {tensor.device} (parameter {path})"
            if not tensor.is_floating_point():
                return f"torch has no fused kernel for {tensor.dtype} (parameter {path})"
            if name == "sgd" and _wrong(tensor):
                return f"torch's fused SGD on the CPU is wrong for {tensor.dtype} (parameter {path})"
    return None


def require_fused(groups: Sequence[TorchGroup], name: str) -> None:
    """Raise TrainingError OPT002 where torch has no fused kernel, on which the optimizer `name` is built."""
    reason = lacking(groups, name)
    if reason:
        raise fail(TrainingError, "OPT002", f"{name} cannot run here: {reason}")


def choose_fused(wanted: str, groups: Sequence[TorchGroup], run: Run, name: str) -> bool:
    """Whether to take the fused kernel. "auto" says so where it does not; "on" raises TrainingError OPT002."""
    if wanted == "off":
        return False
    reason = lacking(groups, name)
    if reason is None:
        return True
    if wanted == "on":
        raise fail(TrainingError, "OPT002", f"fused = 'on', and {reason}")
    run.notice(name, f"{reason}; {READS}", level="warning")
    return False


def make_sgd(groups: list[TorchGroup], *, momentum: float, nesterov: bool, fused: bool) -> torch.optim.SGD:
    """torch's SGD, whose first update can be skipped too.

    torch's fused kernel takes its momentum buffers uninitialised for the first update. If that one is skipped by
    `found_inf` they stay so, and the second takes them for momentum. So they start as zeros: the same values.
    """
    optimizer = torch.optim.SGD(groups, momentum=momentum, nesterov=nesterov, fused=fused or None)
    if fused and momentum:
        optimizer.register_step_pre_hook(_start_momentum)
    return optimizer


def _start_momentum(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and "momentum_buffer" not in optimizer.state[parameter]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def descend(
    values: list[Tensor],
    directions: list[Tensor],
    *,
    lr: float,
    weight_decay: float,
    found_inf: Tensor | None,
    ascend: bool = False,
) -> None:
    """values <- values - lr * (directions + weight_decay * values), in place and, by torch's fused SGD, in one pass.

    `ascend` turns the sign of the directions. Where `found_inf` is 1 on the device nothing changes, and directions may
    then hold anything.
    """
    if any(_wrong(value) for value in values):
        skip = None if found_inf is None else found_inf != 0
        for value, direction in zip(values, directions, strict=True):
            new = value.float() * (1 - lr * weight_decay)
            put(value, new.add_(direction, alpha=lr if ascend else -lr), skip)
        return
    sgd(
        values,
        directions,
        [None] * len(values),
        fused=True,
        grad_scale=None,
        found_inf=found_inf,
        weight_decay=weight_decay,
        momentum=0.0,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=ascend,
    )


def put(target: Tensor, value: Tensor, skip: Tensor | None) -> None:
    """target <- value, unless the device says to skip."""
    if skip is None:
        target.copy_(value)
    else:
        torch.where(skip, target, value.to(target.dtype), out=target)


def batches(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor]
) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Parameters and their gradients in portions, so that what a step needs beside them stays small."""
    batch: tuple[list[Tensor], list[Tensor]] = ([], [])
    size = 0
    for parameter, gradient in zip(parameters, gradients, strict=True):
        limit = _BATCH.get(parameter.device.type, _BATCH_ELSEWHERE)
        if size and size + parameter.numel() > limit:
            yield batch
            batch, size = ([], []), 0
        batch[0].append(parameter)
        batch[1].append(gradient)
        size += parameter.numel()
    if batch[0]:
        yield batch


def _wrong(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype in LOW
