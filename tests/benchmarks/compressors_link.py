"""A worker of `compressors.py link`, which runs blocks of all arms in turns.

    python compressors_link.py RANK ADDRESS

ADDRESS is that of the first worker. Each line on standard input is a JSON object with the number of turns and the
seconds that a block should take; it is answered by one with the seconds of a step in each block, by arm, and what the
run would say of each compressor.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from nlpkernel.context import Run
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.plan.train import Train
from nlpkernel_torchdist.compress.breakeven import measure
from nlpkernel_torchdist.compress.component import Bf16, Int8, PowerSgd, TopK
from nlpkernel_torchdist.compress.reduction import Reduction
from nlpkernel_torchdist.replicas import Replicas
from nlpkernel_torchdist.sync import Alone, Sync
from nlpkernel_transformer.build import build
from nlpkernel_transformer.component import Gpt

COMPRESSORS = {"bf16": Bf16(), "int8": Int8(), "topk": TopK(share=0.01), "powersgd": PowerSgd(rank=4)}
#: Without an exchange, with DDP's own, with each compressor.
ARMS = ("silent", "ddp", *COMPRESSORS)
PORT = 29877
VOCABULARY, WINDOW, ROWS, WIDTH = 512, 64, 16, 192


class Arm:
    """A model of its own and the way in which its gradients are exchanged."""

    def __init__(self, name: str, run: Run) -> None:
        device = torch.device("cpu")
        with torch.device("meta"):
            model = build(Gpt(layers=4, heads=4, width=WIDTH).shape(VOCABULARY, WINDOW))
        self.module: nn.Module = model.module
        allocate(self.module, device, torch.float32)
        fill(model, list(whole(self.module)), seed=0)
        self.reduction: Reduction | None = None
        self.sync: Sync
        if name in COMPRESSORS:
            compressor = COMPRESSORS[name].create_compressor(run)
            self.reduction = Reduction(compressor, dist.new_group(), device)
        world = dist.group.WORLD
        assert world is not None
        self.sync = Alone(self.module) if name == "silent" else Replicas(self.module, world, self.reduction)
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.tokens = torch.randint(VOCABULARY, (ROWS, WINDOW), generator=generator)

    def step(self) -> None:
        """Forward, backward, and the exchange where there is one."""
        with self.sync.microbatch(last=True):
            logits = self.sync.model(tokens=self.tokens).logits
            F.cross_entropy(logits.flatten(0, 1), self.tokens.flatten()).backward()
        self.sync.finish()
        if self.reduction is not None:
            self.reduction.compressor.settle(False)
        self.module.zero_grad(set_to_none=True)

    def exchange(self) -> None:
        """The exchange alone."""
        if self.reduction is None:
            for flat in self._flats():
                dist.all_reduce(flat)
            return
        for flat, encoder in zip(self._flats(), self.reduction.encoders.values(), strict=True):
            self.reduction.add_up(flat, encoder)
        self.reduction.compressor.settle(False)

    def _flats(self) -> list[torch.Tensor]:
        """Gradients as they would be in buckets."""
        if not hasattr(self, "_made"):
            total = sum(each.numel() for each in self.module.parameters())
            sizes = [total]
            if self.reduction is not None:
                sizes = [sum(span.elements for span in spans) for spans in self.reduction.encoders]
            self._made = [torch.randn(size) * 1e-3 for size in sizes]
        return self._made


def timed(work: Callable[[], None], times: int) -> float:
    """Seconds of each, of the slowest worker."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        work()
    dist.barrier()
    return (time.perf_counter() - start) / times


def turns(arms: dict[str, Arm], blocks: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of a step in each block."""
    works: dict[str, Callable[[], None]] = {name: arm.step for name, arm in arms.items()}
    works |= {f"{name} alone": arm.exchange for name, arm in arms.items() if name != "silent"}
    counts: dict[str, int] = {}
    for name, work in works.items():
        work()
        # As many on both workers: those that the first thinks right.
        count = torch.tensor([max(1, round(seconds / timed(work, 1)))])
        dist.broadcast(count, 0)
        counts[name] = int(count)
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(blocks):
        for name, work in works.items():
            times[name].append(timed(work, counts[name]))
    return times


def told(arms: dict[str, Arm], run: Run) -> dict[str, dict[str, Any]]:
    """What the run would say."""
    found = {}
    for name, maker in COMPRESSORS.items():
        reduction = arms[name].reduction
        assert reduction is not None
        gradients = sum(each.nbytes for each in arms[name].module.parameters())
        each = measure(reduction, maker.create_compressor(run), gradients)
        found[name] = {"sent": each.sent, "plain": each.plain, "limit": each.limit, "link": each.link}
    return found


def main(rank: int, address: str) -> None:
    """Meet the other worker, and do what is asked."""
    torch.set_num_threads(1)
    store = dist.TCPStore(address, PORT, 2, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=300))
    with tempfile.TemporaryDirectory() as folder:
        run = Run(name="benchmark", folder=Path(folder), cache=Path(folder), train=Train())
        arms = {name: Arm(name, run) for name in ARMS}
        for line in sys.stdin:
            asked = json.loads(line)
            answer = {"told": told(arms, run), "times": turns(arms, asked["blocks"], asked["seconds"])}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
