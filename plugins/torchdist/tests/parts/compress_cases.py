"""Two workers that exchange the gradients of a model by way of each compressor."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from spawn import found
from torch import Tensor, nn

from nlpkernel_torchdist.compress.breakeven import measure
from nlpkernel_torchdist.compress.component import Bf16, Fp16, Int8, PowerSgd, TopK
from nlpkernel_torchdist.compress.reduction import Reduction
from nlpkernel_torchdist.replicas import Replicas

MAKERS = (Fp16(), Bf16(), Int8(), TopK(), PowerSgd())


class Wide(nn.Module):
    """Two layers, of which the last fills DDP's first bucket (1 MiB) by itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(64, 700), nn.Linear(700, 500)
        self.before_first = threading.Event()

    def forward(self, rows: Tensor) -> Tensor:
        """The backward pass of `first` waits for `before_first`."""
        hidden = self.first(rows).relu()
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: self.before_first.wait(30) and None)
        return self.last(hidden)


def cases(rank: int, world: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for maker in MAKERS:
        run = SimpleNamespace(seed=1)
        group = dist.new_group()
        model = Wide()
        reduction = Reduction(maker.create_compressor(run), group, torch.device("cpu"))
        replicas = Replicas(model, dist.group.WORLD, reduction)
        rows = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank))
        # Of the first window nothing is exchanged before it is through.
        model.before_first.set()
        window(replicas, rows)
        reduction.compressor.settle(False)
        model.zero_grad()
        model.before_first.clear()
        sent: list[int] = []
        counted = Counted(sent, model.before_first)
        try:
            window(replicas, rows)
        finally:
            counted.close()
        reduction.compressor.settle(False)
        elements = sum(each.numel() for each in model.parameters())
        whole = measure(reduction, maker.create_compressor(run), 4 * elements)
        flat = torch.cat([each.grad.reshape(-1) for each in model.parameters()])
        result[reduction.compressor.name] = {
            "buckets": len(reduction.encoders),
            "overlapped": counted.overlapped,
            "sent": sum(sent),
            "announced": whole.sent,
            "plain": whole.plain,
            "elements": elements,
            "gradient": float(flat.double().norm()),
            "alike": _alike(flat),
        }
        reduction.close()
    return result


def window(replicas: Replicas, rows: Tensor) -> None:
    """One of a single micro-batch."""
    with replicas.microbatch(last=True):
        replicas.model(rows).square().mean().backward()
    replicas.finish()


class Counted:
    """Counts what this worker sends, and lets the backward pass go on once something was sent."""

    def __init__(self, sent: list[int], event: threading.Event) -> None:
        self._kept = dist.all_reduce, dist.all_gather_single
        self.overlapped = False

        def all_reduce(tensor: Tensor, **others: Any) -> None:
            self._kept[0](tensor, **others)
            sent.append(tensor.nbytes)
            self._done(event)

        def all_gather_single(into: Tensor, tensor: Tensor, **others: Any) -> None:
            self._kept[1](into, tensor, **others)
            sent.append(tensor.nbytes)
            self._done(event)

        dist.all_reduce, dist.all_gather_single = all_reduce, all_gather_single

    def _done(self, event: threading.Event) -> None:
        # The backward pass stands at the first layer: it cannot have ended.
        self.overlapped |= not event.is_set()
        event.set()

    def close(self) -> None:
        dist.all_reduce, dist.all_gather_single = self._kept


def _alike(flat: Tensor) -> bool:
    both = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(both, flat)
    return all(torch.equal(each, flat) for each in both)


if __name__ == "__main__":
    found(cases)
