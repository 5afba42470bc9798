"""The two arms of `scaling.py`, and a worker that runs blocks of them as it is told.

    python scaling_arms.py RANK WORLD

`theirs` is a loop written by hand on DDP, on DDP with `ZeroRedundancyOptimizer`, or on `fully_shard`; `ours` is a run
of nlpkernel, through `Loop`. Both train the same `gpt` on the same micro-batches, which lie in memory from the start.

Each line on standard input is a JSON object and is answered by one. "open": make an arm for a layout. "block": take so
many steps of it, and say what they cost. "count": the same for callgrind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from scaling_pretend import pretend
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from nlpkernel import Plan, component, hookimpl, setting
from nlpkernel.engine.api import Loop
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.engine.opening import activate
from nlpkernel.hookspecs.data import DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.model import Model, Outputs
from nlpkernel.hookspecs.task import Term
from nlpkernel.plugins.catalog import Catalog
from nlpkernel.supervise.post import Post

VOCABULARY, IGNORED = 256, -100
WINDOWS, LOG_EVERY, CLIP, RATE, DECAY = 16, 20, 1.0, 1e-4, 0.1
BETAS = (0.9, 0.95)

Batch = dict[str, Tensor]


def laid(rows: int, window: int, count: int) -> list[list[Batch]]:
    """`WINDOWS` windows of `count` micro-batches, whose rows count labels up to some length."""
    generator = torch.Generator().manual_seed(1)
    windows: list[list[Batch]] = []
    for _ in range(WINDOWS):
        windows.append([])
        for _ in range(count):
            ids = torch.randint(VOCABULARY, (rows, window + 1), generator=generator)
            lengths = torch.randint(window // 2, window + 1, (rows, 1), generator=generator)
            labels = ids[:, 1:].masked_fill(torch.arange(window) >= lengths, IGNORED)
            windows[-1].append({"tokens": ids[:, :-1].contiguous(), "labels": labels.contiguous()})
    return windows


def weight(batch: Batch) -> float:
    """Labels that count."""
    return float((batch["labels"] != IGNORED).sum())


def entropy(outputs: Outputs, labels: Tensor) -> Tensor:
    """The loss of both arms, summed."""
    assert outputs.logits is not None
    logits = outputs.logits.reshape(-1, VOCABULARY)
    return functional.cross_entropy(logits, labels.reshape(-1), reduction="sum", ignore_index=IGNORED)


class LaidData:
    """Micro-batches that are there already: data costs both arms a look-up."""

    def __init__(self, rows: int, window: int, count: int) -> None:
        self.batches = laid(rows, window, count)
        self._windows = [
            [Microbatch(rows, rows * window, {"loss": weight(each)}) for each in batches]
            for batches in self.batches
        ]
        self.task: Any = Entropy()
        self.info = DataInfo(
            task="entropy",
            vocabulary=VOCABULARY,
            window=window,
            fingerprint="laid",
            splits={"train": SplitInfo(samples=WINDOWS * rows * count)},
        )
        self.codec: Any = None

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """Windows of an epoch."""
        return WINDOWS

    def epoch(self, step: int) -> float:
        """Passes."""
        return step / WINDOWS

    def window(self, step: int) -> Sequence[Microbatch]:
        """What is known of it beforehand."""
        return self._windows[step % WINDOWS]

    def microbatch(self, step: int, index: int) -> Mapping[str, Tensor]:
        """A look-up."""
        return self.batches[step % WINDOWS][index]

    def names(self, step: int, index: int) -> Sequence[str]:
        """Numbers."""
        return [str(step)]

    def evaluation(self, split: str) -> Iterator[Mapping[str, Tensor]]:
        """Nothing is evaluated."""
        return iter(())

    def samples(self, split: str, count: int) -> Sequence[str]:
        """Nothing to show."""
        return []

    def artifacts(self) -> Mapping[str, bytes]:
        """Nothing to keep."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        """Nothing to let go of."""


class Entropy:
    """Summed cross entropy of the labels."""

    name = "entropy"
    main = ("loss", "min")

    def inputs(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The rows."""
        return {"tokens": batch["tokens"]}

    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> Sequence[Term]:
        """One term."""
        return [Term("loss", entropy(outputs, batch["labels"]))]


@component
class Laid:
    """The data of this benchmark."""

    rows: int = setting(help="rows of a micro-batch")
    window: int = setting(help="tokens of a row")
    count: int = setting(help="micro-batches of a step")

    @hookimpl
    def open_data(self) -> LaidData:
        """Lay the batches out."""
        return LaidData(self.rows, self.window, self.count)

    @hookimpl
    def open_codec(self) -> None:
        """Nothing is ever decoded."""


# -- ours ------------------------------------------------------------------------------------------------------------


class _Post(Post):
    """One of several workers that nobody supervises; the folder of the run is there already."""

    supervised = True

    def __init__(self, rank: int, world: int, launch: str) -> None:
        super().__init__()
        self.rank, self.world, self.launch = rank, world, launch


def installed() -> dict[str, Any]:
    """Monitors and checkpoint of the run, those of the standard ones that are there."""
    offers = {(offer.point, offer.name) for offer in Catalog().offers}
    monitors = [{"use": name} for name in ("console", "jsonl") if ("monitor", name) in offers]
    sections: dict[str, Any] = {"monitor": monitors} if monitors else {}
    if ("checkpoint", "store") in offers:
        sections["checkpoint"] = {"use": "store"}
    return sections


def plan_of(name: str, asked: Mapping[str, Any]) -> Plan:
    """A plan of as many steps as anybody could take."""
    count, rows = asked["count"], asked["rows"]
    values: dict[str, Any] = {
        "name": name,
        "train": {
            "steps": 10**6,
            "batch": rows * count,
            "micro": rows,
            "clip": CLIP,
            "log": {"every": LOG_EVERY},
            "threads": 1,
        },
        "data": {
            "use": f"{Path(__file__).resolve()}:Laid",
            "rows": rows,
            "window": asked["window"],
            "count": count,
        },
        "model": {"use": "gpt", "bias": True, **{name: asked[name] for name in ("layers", "heads", "width")}},
        "optimizer": {"use": "adamw", "lr": RATE, "betas": list(BETAS), "weight_decay": DECAY},
        **installed(),
    }
    if asked["communicator"] is not None:
        values["communicator"] = {"use": "torchdist", **asked["communicator"]}
    return Plan.of(values)


def ours(plan: Plan, folder: Path, rank: int, world: int, launch: str) -> Iterator[object]:
    """A run, step by step."""
    return Loop(plan, folder, post=_Post(rank, world, launch)).steps()


# -- theirs ----------------------------------------------------------------------------------------------------------


def network(plan: Plan, folder: Path, window: int) -> nn.Module:
    """The same model with the same weights, as a plain module."""
    run, hooks, composition = activate(plan, folder)
    info = DataInfo(task="entropy", vocabulary=VOCABULARY, window=window, fingerprint="laid", splits={})
    with torch.device("meta"):
        model: Model = hooks.ask(composition.slot("model").component, "create_model", run=run, info=info)
    allocate(model.module, torch.device("cpu"), torch.float32)
    fill(model, whole(model.module), run.seed)
    return model.module.train()


def groups_of(module: nn.Module) -> list[dict[str, Any]]:
    """Weight decay for matrices alone, as usual."""
    parameters = list(module.parameters())
    return [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": DECAY},
        {"params": [each for each in parameters if each.ndim < 2], "weight_decay": 0.0},
    ]


def theirs(
    module: nn.Module, asked: Mapping[str, Any], shard: int, rank: int, world: int, log: Path
) -> Iterator[None]:
    """A loop that takes care of what costs time, as one writes it for one layout.

    The weight of a window is known on the host, as in ours; losses stay on the device until they are logged.
    """
    data = laid(asked["rows"], asked["window"], asked["count"])
    totals = [sum(map(weight, batches)) for batches in data]
    settings: dict[str, Any] = {"lr": RATE, "betas": BETAS, "fused": True}
    model: Any = module
    group = dist.new_group(list(range(world))) if world > 1 else None
    if shard > 1:
        mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
        for block in module.blocks:  # type: ignore[union-attr]
            fully_shard(block, mesh=mesh, reshard_after_forward=shard == 3)
        model = fully_shard(module, mesh=mesh, reshard_after_forward=shard == 3)
    elif world > 1:
        model = DistributedDataParallel(module, process_group=group, gradient_as_bucket_view=True)
    if shard == 1:
        matrices, vectors = groups_of(module)
        optimizer: Any = ZeroRedundancyOptimizer(
            matrices["params"], torch.optim.AdamW, group, weight_decay=DECAY, **settings
        )
        optimizer.add_param_group(vectors)
    else:
        optimizer = torch.optim.AdamW(groups_of(module), **settings)
    parameters = list(module.parameters())
    sharded = isinstance(model, FSDPModule)
    kept: list[Tensor] = []
    step = 0
    with log.open("w", encoding="utf-8") as file:
        while True:
            summed: Tensor | None = None
            mine = range(rank, asked["count"], world)
            for index in mine:
                last = index == mine[-1]
                batch = data[step % WINDOWS][index]
                if sharded:
                    model.set_requires_gradient_sync(last)
                    model.set_is_last_backward(last)
                with nullcontext() if last or sharded or world == 1 else model.no_sync():
                    loss = entropy(model(tokens=batch["tokens"]), batch["labels"])
                    # Both wrappers take the mean over workers.
                    (loss * (world / totals[step % WINDOWS])).backward()
                value = loss.detach()
                summed = value if summed is None else summed + value
            norm = nn.utils.clip_grad_norm_(parameters, CLIP, foreach=True)
            if isinstance(norm, DTensor):
                norm = norm.full_tensor()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            assert summed is not None
            kept += (summed, norm)
            step += 1
            if step % LOG_EVERY == 0:
                sums = torch.stack(kept[::2])
                if world > 1:
                    dist.all_reduce(sums, group=group)
                read = torch.cat((sums, torch.stack(kept[1::2]))).tolist()
                if rank == 0:
                    weights = (totals[each % WINDOWS] for each in range(step - LOG_EVERY, step))
                    losses = [total / each for total, each in zip(read, weights, strict=False)]
                    file.write(json.dumps({"step": step, "losses": losses, "norms": read[LOG_EVERY:]}) + "\n")
                    file.flush()
                kept = []
            yield


# -- a worker --------------------------------------------------------------------------------------------------------

#: What a block is measured by.
CLOCKS = {"wall": time.perf_counter, "process": time.process_time, "thread": time.thread_time}
#: Steps that are not counted, by callgrind.
WARM = 3


def _control(*words: str) -> None:
    command = ["callgrind_control", *words, str(os.getpid())]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


class Worker:
    """One arm of one layout."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._arm: Iterator[object] = iter(())

    def open(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Make the arm, and take its first step."""
        world = asked["fake"] or self._world
        if asked["fake"]:
            pretend()
        folder = Path(asked["run"])
        plan = plan_of(folder.name, asked)
        if asked["arm"] == "ours":
            self._arm = ours(plan, folder, self._rank, world, asked["launch"])
        else:
            if world > 1:
                store = dist.FileStore(str(folder / "store"), self._world)
                dist.init_process_group("gloo", store=store, rank=self._rank, world_size=world)
            module = network(plan, folder, asked["window"])
            log = folder / f"theirs-{self._rank}.jsonl"
            self._arm = theirs(module, asked, asked["theirs"], self._rank, world, log)
        next(self._arm)
        return {}

    def block(self, asked: Mapping[str, Any]) -> dict[str, float]:
        """Seconds of so many steps: on the clock, of this process on a core, and of its main thread. The step before
        them brings workers together, and code and data into the caches."""
        next(self._arm)
        before = [clock() for clock in CLOCKS.values()]
        for _ in range(asked["steps"]):
            next(self._arm)
        after = [clock() for clock in CLOCKS.values()]
        return {what: end - start for what, start, end in zip(CLOCKS, before, after, strict=True)}

    def count(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Let callgrind count the instructions of so many steps, and dump them."""
        for _ in range(WARM):
            next(self._arm)
        for words in (("-i", "on"), ("-z",)):
            _control(*words)
        for _ in range(asked["steps"]):
            next(self._arm)
        for words in (("-d",), ("-i", "off")):
            _control(*words)
        return {}


def main() -> None:
    """Answer until there is nothing more to read."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore", module="torch")
    torch.set_num_threads(1)
    worker = Worker(int(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(getattr(worker, asked["do"])(asked)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
