"""A group of one worker, and the plain window and update that other groups build on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nlpkernel.engine.materialise import allocate
from nlpkernel.errors import TrainingError, fail
from nlpkernel.hookspecs.communicator import Axis, Held, Requirements, Update, Work
from nlpkernel.state import Leaf, Replicated

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.model import Anatomy, ParameterGroup
    from nlpkernel.hookspecs.task import Counts, Term

#: Comparing devices is cheap; `device.type` makes a string each time.
_CPU = torch.device("cpu")


def pick_device(name: str, run: Run, index: int = 0) -> torch.device:
    """The device that a plan names; "auto" is torch's accelerator number `index`, or the CPU where there is none.

    Raise TrainingError where the named device is not there: never another one in silence.
    """
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        device = torch.device("cpu") if accelerator is None else torch.device(accelerator.type, index)
        run.notice("communicator", f"device = auto picked {device}")
        return device
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise fail(
            TrainingError,
            "NK401",
            f"the device {name!r} cannot be used: {reason}",
            hint='write device = "auto"',
        ) from error
    return device


def run_window(
    work: Work, device: torch.device, step: int, mine: Sequence[int], totals: Mapping[str, float]
) -> dict[str, Tensor]:
    """Forward and backward of the micro-batches `mine` of window `step`.

    Each loss term counts as its sum over the total weight of the whole window, so the gradient is that of the true
    mean, however the window is cut. Returns the summed terms, detached, on the device.
    """
    shares = shares_of(totals)
    sums: dict[str, Tensor] = {}
    for index in mine:
        run_microbatch(work, work.model, device, step, index, shares, sums)
    return sums


def shares_of(totals: Mapping[str, float], factor: float = 1.0) -> dict[str, float]:
    """What one unit of each term counts. A term without weight in this window counts nothing, and keeps the graph
    whole."""
    return {name: factor / total if total else 0.0 for name, total in totals.items()}


def run_microbatch(
    work: Work,
    model: Callable[..., Any],
    device: torch.device,
    step: int,
    index: int,
    shares: Mapping[str, float],
    sums: dict[str, Tensor],
    *,
    telling: bool = False,
) -> None:
    """Forward and backward of one micro-batch, whose summed terms are added to `sums`. `telling`: a term that is not
    finite makes its gradient not finite too, so that all workers that add up gradients learn of it."""
    task, precision = work.task, work.precision
    batch = batch_on(work, device, step, index)
    with precision.autocast():
        terms = task.loss(model(**task.inputs(batch)), batch)
    values, seeds = count(terms, shares, device, sums, telling=telling)
    if not values:
        return
    if work.backward is None and not precision.scaled:
        # Seeded with its share, a term gives the same gradient as the product of the two, without that product
        # in the graph of every micro-batch.
        torch.autograd.backward(values, seeds)
        return
    loss = torch.stack([value * seed for value, seed in zip(values, seeds, strict=True)]).sum()
    if precision.scaled:
        loss = precision.scale(loss)
    if work.backward is None:
        loss.backward()  # type: ignore[no-untyped-call]
    else:
        work.backward(loss, sums)


def batch_on(work: Work, device: torch.device, step: int, index: int) -> Batch:
    """A micro-batch on the device."""
    batch = work.data.microbatch(step, index)
    if device == _CPU:
        return batch
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def count(
    terms: Iterable[Term],
    shares: Mapping[str, float],
    device: torch.device,
    sums: dict[str, Tensor],
    *,
    telling: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """The terms of one micro-batch, and what one unit of each counts in the loss; adds them to `sums`, detached."""
    values: list[Tensor] = []
    seeds: list[Tensor] = []
    for name, value, coefficient in terms:
        if name not in shares:
            raise _without_weight(name, shares)
        seed = _seed(coefficient * shares[name], value.dtype, device)
        values.append(value)
        value = value.detach()
        # x - x is 0 for a finite x alone.
        seeds.append(seed + (value - value) if telling else seed)
        sums[name] = sums[name] + value if name in sums else value
    return values, seeds


@lru_cache(maxsize=256)
def _seed(share: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A share as a tensor without dimensions. Most windows of a run have the same few."""
    return torch.tensor(share, dtype=dtype, device=device)


def _without_weight(name: str, totals: Mapping[str, float]) -> Exception:
    return fail(
        TrainingError,
        "NK406",
        f"the loss has a term {name!r}, and the task's weights have only {', '.join(totals)}",
    )


def update(
    work: Work,
    number: int,
    sums: Mapping[str, Tensor],
    *,
    norm_of: Callable[[list[Tensor]], Tensor] | None = None,
    step: Callable[[], object] | None = None,
) -> Update:
    """Unscale, take the global norm, clip, and step unless something is not finite; then clear the gradients.

    `number` is the number of updates applied before, of which the rate is a function. An optimizer that honours
    `found_inf` decides on the device; for another one, and where a skipped update is expected (a loss scale, policy
    `skip`), the host reads one number here. Where this worker holds but a part of the gradients, `norm_of` gives the
    norm of all; where the optimizer steps but a part of the parameters, `step` does what makes them whole again.
    """
    optimizer = work.optimizer
    step = optimizer.step if step is None else step
    gradients = [grad for _, tensor in work.named if (grad := tensor.grad) is not None]
    if work.precision.scaled:
        work.precision.unscale(gradients)
    if work.gradients_global is not None:
        work.gradients_global(named_gradients(work))
        gradients = [tensor.grad for _, tensor in work.named if tensor.grad is not None]
    norm = global_norm(gradients) if norm_of is None else norm_of(gradients)
    check = norm
    for value in sums.values():
        check = check + value
    # x - x is 0 for a finite x alone.
    bad = check - check != 0
    if work.clip is not None:
        # min(1, clip / norm) without asking the host; a norm that is no number is caught by `bad`.
        torch._foreach_mul_(gradients, (work.clip / (norm + 1e-6)).clamp(max=1.0))
    factor = work.schedule.factor(number)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor
    if work.latch:
        # One bad window makes every later update a no-op, until the host looks.
        bad = work.bad = bad.to(torch.float32) if work.bad is None else torch.maximum(work.bad, bad)
    if work.deferred:
        applied = None
        optimizer.found_inf = bad  # type: ignore[attr-defined]
        step()
    else:
        applied = not bad
        if work.precision.scaled:
            work.precision.observe(not applied)
        if applied:
            step()
    # What `optimizer.zero_grad` does, without the profiler region that it opens: some 25 us a step.
    for _, tensor in work.named:
        tensor.grad = None
    return Update(applied, norm, bad)


def named_gradients(work: Work) -> list[tuple[str, Tensor]]:
    """The gradients that there are, by parameter name."""
    return [(name, tensor.grad) for name, tensor in work.named if tensor.grad is not None]


def global_norm(gradients: list[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, without dimensions, on the device."""
    if not gradients:
        return torch.zeros(())
    norms: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return norms


class SingleGroup:
    """One worker: everything is local."""

    rank = 0
    world = 1
    stream = 0
    requires = Requirements()

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.axes: Mapping[str, Axis] = {name: Axis() for name in ("data", "tensor", "pipe", "expert")}

    @property
    def present(self) -> Collection[int]:
        """All that there are."""
        return range(self.world)

    def agree(self, fingerprint: Mapping[str, str]) -> None:
        """One worker agrees with itself."""

    def share(self, value: Any) -> Any:
        """The only worker is the first."""
        return value

    def assign(self, step: int, count: int) -> Sequence[int]:
        """All micro-batches are mine."""
        return range(count)

    def distribute(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        finish_block: Callable[[nn.Module], nn.Module],
        dtype: torch.dtype,
    ) -> nn.Module:
        """Allocate the model on the device; ties stay ties."""
        allocate(module, self.device, dtype)
        finish(module, anatomy.blocks, finish_block)
        return module

    def held(self, module: nn.Module) -> Sequence[Held]:
        """All of the model, each parameter and buffer as a whole."""
        return list(whole(module))

    def trained(self, held: Sequence[Held]) -> Sequence[Held]:
        """Every parameter that has a gradient."""
        return trainable(held)

    def create_optimizer(
        self,
        make: Callable[[Sequence[ParameterGroup]], torch.optim.Optimizer],
        groups: Sequence[ParameterGroup],
    ) -> torch.optim.Optimizer:
        """Make the optimizer here."""
        return make(groups)

    def total(self, weights: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Sums on the host."""
        if len(weights) == 1:
            return weights[0]
        return {name: sum(map(itemgetter(name), weights)) for name in weights[0]}

    def run_window(
        self, work: Work, step: int, mine: Sequence[int], totals: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """The plain window."""
        return run_window(work, self.device, step, mine, totals)

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """The plain update; what is local is global."""
        if work.gradients_local is not None:
            work.gradients_local(named_gradients(work))
        return update(work, number, sums)

    def forward(self, work: Work, inputs: Mapping[str, Any]) -> Any:
        """A forward of the model as it stands."""
        with work.precision.autocast():
            return work.model(**inputs)

    def spread(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """All batches are mine."""
        return ((batch, True) for batch in batches)

    def merge(self, counts: Counts) -> Counts:
        """The counts of one worker are the counts of all."""
        return counts

    def gather(self, work: Work) -> None:
        """Everything is here."""

    def state(self) -> Mapping[str, Leaf]:
        """A group of one remembers nothing."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """Nothing to leave."""


def finish(module: nn.Module, blocks: Iterable[str], finish_block: Callable[[nn.Module], nn.Module]) -> None:
    """Apply `finish_block` to the blocks at these paths."""
    for path in blocks:
        parent, _, name = path.rpartition(".")
        block = module.get_submodule(path)
        finished = finish_block(block)
        if finished is not block:
            setattr(module.get_submodule(parent), name, finished)


def whole(module: nn.Module) -> Iterator[Held]:
    """Parameters and buffers of a module that is not cut, tied ones once."""
    transient = {
        f"{path}.{name}" if path else name
        for path, each in module.named_modules()
        for name in each._non_persistent_buffers_set
    }
    for name, parameter in module.named_parameters():
        yield Held(name=name, tensor=parameter, kind=Replicated())
    for name, buffer in module.named_buffers():
        yield Held(name=name, tensor=buffer, kind=Replicated(), kept=name not in transient)


def trainable(held: Iterable[Held]) -> list[Held]:
    """Those of the parameters that have a gradient."""
    return [each for each in held if each.tensor.requires_grad]
