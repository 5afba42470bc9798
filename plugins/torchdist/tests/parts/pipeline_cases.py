"""Models cut into stages, held against one process: run by test_pipeline.py in two processes, and in four, which cut
each stage over a tensor axis as well."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from models import CPU, TASK, batches, deviation, filled, structure, sums_and_gradients
from neighbours import Tuples
from spawn import found
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.hookspecs.communicator import Held, Work
from nlpkernel.hookspecs.model import Model
from nlpkernel.state import Replicated, Sharded
from nlpkernel_torchdist.pipeline import Pipeline
from nlpkernel_torchdist.tensor import local_gradient, parallelize

SHARE = 0.01
#: More lengths than schedules are kept for.
WINDOWS = (1, 2, 3, 4, 5, 1)
#: A model, and how it is cut.
CASES: dict[str, dict[str, Any]] = {
    "gpipe": {"schedule": "gpipe", "name": "gpt", "logits": "chunked"},
    "1f1b": {"schedule": "1f1b", "name": "gpt", "tie": False, "bias": True},
    "interleaved": {"schedule": "interleaved", "name": "gpt"},
    "rotary, isolated, checkpointed, uneven": {
        "schedule": "1f1b",
        "name": "llama",
        "layers": 3,
        "isolated": True,
        "checkpointing": "full",
        "windows": (3,),
    },
    "interleaved, chunked, checkpointed": {
        "schedule": "interleaved",
        "name": "llama",
        "tie": True,
        "logits": "chunked",
        "checkpointing": 2,
        "windows": (3,),
    },
    "tuples": {"schedule": "1f1b", "name": "tuples", "layers": 5, "windows": (3,)},
    "tuples, frozen below": {"schedule": "1f1b", "name": "tuples", "freeze": 2, "windows": (3,)},
}


class Plain:
    """Float32, with a scaled loss where asked."""

    def __init__(self, scale: float = 1.0) -> None:
        self.factor, self.scaled = scale, scale != 1.0

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.factor


class Data:
    def __init__(self, made: Sequence[dict[str, Tensor]]) -> None:
        self.made = made

    def microbatch(self, step: int, index: int) -> dict[str, Tensor]:
        return self.made[index]


def work_of(module: nn.Module, made: Sequence[dict[str, Tensor]], scale: float = 1.0) -> Work:
    """As much of the work as a window uses."""
    nothing: Any = None
    data: Any = Data(made)
    precision: Any = Plain(scale)
    return Work(
        data=data,
        task=TASK,
        model=module,
        named=[],
        precision=precision,
        optimizer=nothing,
        schedule=nothing,
        clip=None,
        latch=False,
        deferred=False,
    )


def made_of(name: str, freeze: int = 0, **changes: Any) -> Model:
    model = Tuples.made(**changes) if name == "tuples" else structure(name, **{"layers": 4, **changes})
    for path in model.anatomy.blocks[:freeze]:
        model.module.get_submodule(path).requires_grad_(False)
    if freeze:
        model.module.get_submodule(model.anatomy.embedding or "").requires_grad_(False)
    return model


class Cut:
    """A model of which this worker has its stages, filled."""

    def __init__(self, model: Model, pipeline: Pipeline, mesh: Any = None) -> None:
        names = [name for name, _ in model.module.named_parameters()]
        self.pipeline, self.module = pipeline, model.module
        pipeline.cut(model.module, model.anatomy)
        self.cut: dict[str, Sharded] = {} if mesh is None else parallelize(model.module, model.anatomy, mesh)
        allocate(model.module, CPU, torch.float32)
        held = list(whole(model.module)) if mesh is None else list(self._held())
        fill(model, held, 3)
        pipeline.settle(model.module)
        self.names = [name for name, _ in model.module.named_parameters()]
        assert self.names == [name for name in names if pipeline.owns(name)]
        self.elements = sum(each.tensor.numel() for each in held)

    def _held(self) -> Any:
        for name, each in self.module.named_parameters():
            tensor = each.to_local() if isinstance(each, DTensor) else each
            yield Held(name=name, tensor=tensor, kind=self.cut.get(name, Replicated()))

    def gradients(self) -> dict[str, Tensor | None]:
        """Those that there are, which are cleared."""
        found = {name: local_gradient(each) for name, each in self.module.named_parameters()}
        for each in self.module.parameters():
            each.grad = None
        return found


def case(
    pipeline: Pipeline,
    mesh: Any = None,
    windows: Sequence[int] = WINDOWS,
    isolated: bool = False,
    scale: float = 1.0,
    **changes: Any,
) -> dict[str, Any]:
    """Deviations of losses, gradients and evaluation of one model from one process."""
    made = batches(5, isolated=isolated)
    here = Cut(made_of(**changes), pipeline, mesh)
    work = work_of(here.module, made, scale)
    loss = gradient = 0.0
    for size in windows:
        alone = filled(made_of(**changes))
        wanted, gradients = sums_and_gradients(alone, made[:size], SHARE * scale)
        sums: dict[str, Tensor] = {}
        pipeline.run_window(work, 0, [(index, {"loss": SHARE}) for index in range(size)], sums)
        pipeline.exchange_ties(here.module)
        if pipeline.count - 1 in pipeline.mine:
            loss = max(loss, abs(float(sums["loss"]) - wanted) / wanted)
        else:
            assert not sums
        for name, each in here.gradients().items():
            if each is None:
                assert name not in gradients, name
            else:
                gradient = max(gradient, deviation(each, gradients[name], here.cut.get(name, Replicated())))
    evaluated = TASK.evaluate(lambda **inputs: pipeline.forward(work, inputs), made[0])
    with torch.no_grad():
        directly = TASK.evaluate(lambda **inputs: alone.module(**inputs), made[0])
    return {
        "loss": loss,
        "gradient": gradient,
        "evaluation": abs(float(evaluated["loss_sum"]) / float(directly["loss_sum"]) - 1),
        "names": here.names,
        "saves": [name for name in here.names if pipeline.saves(name)],
        "all": [name for name, _ in alone.module.named_parameters()],
        "tied": pipeline.tied,
        "blocks": pipeline.blocks,
        "elements": here.elements,
    }


def dropped(pipeline: Pipeline) -> list[Any]:
    """Sums, gradients and random numbers of the same window, twice."""
    made = batches(3)
    here = Cut(made_of("gpt", dropout=0.3), pipeline)
    work = work_of(here.module, made)
    told = []
    for _ in range(2):
        torch.manual_seed(5 + pipeline.rank)
        sums: dict[str, Tensor] = {}
        pipeline.run_window(work, 0, [(index, {"loss": SHARE}) for index in range(3)], sums)
        norms = [float(each.norm()) for each in here.gradients().values() if each is not None]
        told.append([{name: float(each) for name, each in sums.items()}, norms, float(torch.rand(()))])
    return told


def not_finite(pipeline: Pipeline) -> list[bool]:
    """Whether the gradients of this worker's blocks tell that a loss on the last stage was infinite."""
    here = Cut(made_of("gpt"), pipeline)
    work = work_of(here.module, batches(2))
    pipeline.run_window(work, 0, [(0, {"loss": SHARE}), (1, {"loss": float("inf")})], {})
    return [
        not bool(each.isfinite().all())
        for name, each in here.gradients().items()
        if each is not None and "mlp" in name
    ]


def ended(pipeline: Pipeline) -> str:
    """How a window ends on this worker whose task raises on the last stage."""

    def broken(outputs: Any, batch: Any) -> Any:
        raise ValueError("no loss today")

    here = Cut(made_of("gpt"), pipeline)
    work = work_of(here.module, batches(2))
    work.task = type("Broken", (), {"inputs": staticmethod(TASK.inputs), "loss": staticmethod(broken)})()
    try:
        pipeline.run_window(work, 0, [(0, {"loss": SHARE}), (1, {"loss": SHARE})], {})
    except (ValueError, RuntimeError) as error:
        # The others wait for this one; they learn of its end when it has left.
        dist.destroy_process_group()
        return f"{type(error).__name__}: {error}"
    return "well"


def refuse(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("a pickling collective")


def cases(rank: int, world: int) -> Mapping[str, Any]:
    for name in ("send_object_list", "recv_object_list", "broadcast_object_list", "all_gather_object"):
        setattr(dist, name, refuse)
        setattr(dist.distributed_c10d, name, refuse)
    if world == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pipe", "tensor"))
        pipe = mesh["pipe"]
        pipeline = Pipeline(pipe.get_local_rank(), 2, pipe.get_group(), CPU, "1f1b")
        return {"tensor": case(pipeline, mesh["tensor"], windows=(3,), name="gpt", bias=True)}
    results: dict[str, Any] = {}
    for name, given in CASES.items():
        changes = dict(given)
        results[name] = case(Pipeline(rank, world, None, CPU, changes.pop("schedule"), 2), **changes)
    scaled = {"windows": (2,), "scale": 1024.0, "name": "gpt"}
    results["scaled"] = case(Pipeline(rank, world, None, CPU, "1f1b"), **scaled)
    results["dropout"] = dropped(Pipeline(rank, world, None, CPU, "1f1b"))
    results["not finite"] = not_finite(Pipeline(rank, world, None, CPU, "1f1b"))
    results["ended"] = ended(Pipeline(rank, world, None, CPU, "gpipe"))
    return results


if __name__ == "__main__":
    found(cases)
