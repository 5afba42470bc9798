"""Models cut over the tensor axis, held against one process: run by test_tensor.py in several processes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from models import CPU, TASK, batches, deviation, filled, structure, sums_and_gradients
from spawn import found
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.hookspecs.communicator import Held
from nlpkernel.state import Replicated
from nlpkernel_torchdist.tensor import local_gradient, parallelize, whole_outputs

CASES: dict[str, dict[str, Any]] = {
    "gpt": {"name": "gpt"},
    "gpt untied with biases": {"name": "gpt", "tie": False, "bias": True, "vocabulary": 64},
    "gpt chunked": {"name": "gpt", "logits": "chunked", "bias": True},
    "llama": {"name": "llama"},
    "llama tied, chunked, checkpointed": {
        "name": "llama",
        "tie": True,
        "logits": "chunked",
        "checkpointing": "full",
    },
    "llama eager, checkpointed": {
        "name": "llama",
        "attention": "eager",
        "checkpointing": "full",
        "isolated": True,
    },
}
FOUR = {"gpt four": {"name": "gpt", "bias": True}}


def case(mesh: DeviceMesh, isolated: bool = False, vocabulary: int = 61, **changes: Any) -> dict[str, Any]:
    """Deviations of loss, gradients and evaluation of one model from one process."""
    work = batches(2, vocabulary, isolated=isolated)
    wanted, gradients = sums_and_gradients(
        filled(structure(vocabulary=vocabulary, **changes)), copy.deepcopy(work), 0.01
    )
    model = structure(vocabulary=vocabulary, **changes)
    names = [name for name, _ in model.module.named_parameters()]
    cut = parallelize(model.module, model.anatomy, mesh)
    allocate(model.module, CPU, torch.float32)
    assert [name for name, _ in model.module.named_parameters()] == names
    held = [
        Held(
            name=name,
            tensor=each.to_local() if isinstance(each, DTensor) else each,
            kind=cut.get(name, Replicated()),
        )
        for name, each in model.module.named_parameters()
    ]
    fill(model, held, 3)
    total = 0.0
    for batch in work:
        outputs = whole_outputs(model.module(**TASK.inputs(batch)))
        (term,) = TASK.loss(outputs, batch)
        (term.sum * 0.01).backward()
        total += float(term.sum.detach())
    worst = 0.0
    for name, each in model.module.named_parameters():
        grad = local_gradient(each)
        assert grad is not None, name
        assert type(grad) is torch.Tensor, name
        worst = max(worst, deviation(grad, gradients[name], cut.get(name, Replicated())))
    with torch.no_grad():
        counts = TASK.evaluate(lambda **inputs: whole_outputs(model.module(**inputs)), work[0])
    return {
        "loss": abs(total - wanted) / wanted,
        "gradient": worst,
        "cut": sorted(cut),
        "elements": sum(each.tensor.numel() for each in held),
        "evaluated": float(counts["loss_sum"]),
    }


def dropped(mesh: DeviceMesh) -> list[float]:
    """The losses of two passes with dropout from the same seed, and where the random numbers stand after them."""
    model = structure("gpt", dropout=0.3)
    cut = parallelize(model.module, model.anatomy, mesh)
    allocate(model.module, CPU, torch.float32)
    fill(
        model,
        [
            Held(
                name=name,
                tensor=each.to_local() if isinstance(each, DTensor) else each,
                kind=cut.get(name, Replicated()),
            )
            for name, each in model.module.named_parameters()
        ],
        3,
    )
    (batch,) = batches(1)
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        (term,) = TASK.loss(whole_outputs(model.module(**TASK.inputs(batch))), batch)
        term.sum.backward()
        found += [float(term.sum.detach()), float(torch.rand(()))]
    return found


def cases(rank: int, world: int) -> Mapping[str, Any]:
    mesh = init_device_mesh("cpu", (world,))
    if world == 4:
        return {name: case(mesh, **changes) for name, changes in FOUR.items()}
    results: dict[str, Any] = {name: case(mesh, **changes) for name, changes in CASES.items()}
    results["dropout"] = dropped(mesh)
    return results


if __name__ == "__main__":
    found(cases)
