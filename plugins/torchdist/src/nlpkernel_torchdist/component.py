"""The communicator `torchdist`. Light: torch is imported when the group is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel_torchdist import fitting
from nlpkernel_torchdist.codes import OWNER as OWNER
from nlpkernel_torchdist.layout import Layout

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.communicator import Group
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.supervise.post import Post


@component
class TorchDist:
    """Workers that train one model together over torch.distributed: NCCL between GPUs, Gloo between CPUs.

    `workers` is data x tensor x pipeline. The loss curve is the same for all of them.
    """

    workers: int = setting(
        default=2,
        ge=1,
        help="processes that are started on this machine; where another launcher starts them, its number counts",
    )
    data: int | None = setting(
        default=None,
        ge=1,
        help="workers that each take a share of every batch; left out: what tensor and pipeline leave over",
    )
    shard: Literal[0, 1, 2, 3] = setting(
        default=0,
        help="what the data workers divide among themselves (ZeRO): 0: nothing, each has all; 1: the optimizer's "
        "state; 2: the gradients too; 3: the parameters too",
    )
    offload: bool = setting(
        default=False, help="with shard 2 or 3: keep parameters and optimizer state in host memory"
    )
    reduce: Literal["window", "microbatch"] = setting(
        default="window",
        help="with shard 2 or 3 and several micro-batches: gradients are exchanged once a window, and whole until "
        "then; or after each micro-batch, which exchanges more and holds less",
    )
    tensor: int = setting(default=1, ge=1, help="workers among which each layer is cut")
    pipeline: int = setting(
        default=1, ge=1, help="stages, one after the other, into which the blocks are divided"
    )
    schedule: Literal["1f1b", "gpipe", "interleaved"] = setting(
        default="1f1b",
        help="with a pipeline, the order of forwards and backwards: 1f1b holds few micro-batches, gpipe all of a "
        "window, interleaved gives each worker several stages",
    )
    virtual: int = setting(default=2, ge=2, help="stages of each worker in the interleaved schedule")
    uneven: Literal["pad", "truncate"] = setting(
        default="pad",
        help="a window that does not divide among the data workers: fill up with micro-batches that count nothing, "
        "or leave out those that are too many (counted)",
    )
    unused: bool = setting(
        default=False,
        help="some trained parameters get no gradient in some windows (dropped layers, experts without tokens): "
        "with shard 0 or 1 gradients are then exchanged after the backward pass, not beside it, which a run finds out "
        "by itself where its first window shows it; with shard 2 or 3 such a gradient counts as zeros",
    )
    backend: Literal["auto", "gloo", "nccl"] = setting(
        default="auto", help="how tensors travel; auto: nccl on CUDA devices, gloo elsewhere"
    )
    device: str = setting(
        default="auto",
        help="where to train; auto: the accelerator of the worker's number on its machine, or the CPU",
    )
    compressor: Any = extension(
        "compressor",
        default=None,
        help="fewer bytes for the gradients that data workers exchange, with shard 0 or 1: fp16, bf16, int8, topk, "
        "powersgd",
    )
    timeout: float = setting(
        default=600.0, gt=0, unit="seconds", help="how long a worker waits for the others in an exchange"
    )
    trusted_network: bool = setting(
        default=False,
        help="workers on several machines: what they exchange is neither encrypted nor authenticated, and nobody "
        "else can reach this network",
    )
    interface: str | None = setting(
        default=None,
        help="the network interface (eth0, ib0) that workers on several machines use; left out: the one from which the "
        "first worker is reached. On one machine it is the loopback interface",
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        apart = self.tensor * self.pipeline
        if self.data is not None and self.data * apart != self.workers:
            yield (
                "data",
                f"data {self.data} x tensor {self.tensor} x pipeline {self.pipeline} is {self.data * apart}, and "
                f"workers is {self.workers}; leave data out",
            )
        elif self.workers % apart:
            yield (
                "workers",
                f"{self.workers} workers cannot be laid out as tensor {self.tensor} x pipeline {self.pipeline}: that "
                f"takes a multiple of {apart}",
            )
        if self.offload and self.shard < 2:
            yield "offload", "offload keeps sharded parameters in host memory, so it needs shard 2 or 3"
        if self.reduce == "microbatch" and self.shard < 2:
            yield "reduce", 'reduce = "microbatch" has a meaning only with shard 2 or 3'
        if self.pipeline > 1 and self.shard > 1:
            yield (
                "shard",
                f"shard {self.shard} gathers parameters in every forward of a stage, which a pipeline does for each "
                "micro-batch; use shard 0 or 1 with it",
            )
        if self.compressor is not None and self.shard > 1:
            yield (
                "compressor",
                f"shard {self.shard} reduces gradients to the parts of each worker by itself; a compressor needs shard "
                "0 or 1",
            )
        if self.schedule == "interleaved" and self.pipeline == 1:
            yield "schedule", "the interleaved schedule needs a pipeline, whose stages it interleaves"

    @property
    def on_cpus(self) -> bool:
        """Whether the plan says that its workers use no accelerator."""
        return self.device == "cpu" or self.backend == "gloo"

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """What one worker holds of everything."""
        return fitting.estimate(self, facts)

    @hookimpl
    def misfits(self, facts: Facts) -> Sequence[tuple[str, str]]:
        """Layouts that the model, the optimizer or the batch do not allow."""
        return list(fitting.misfits(self, facts))

    def layout(self, workers: int) -> Layout:
        """The layout of so many workers. Raise PlanError (TDI001) where there is none."""
        data, rest = divmod(workers, self.tensor * self.pipeline)
        if rest or not data or (self.data is not None and workers == self.workers and self.data != data):
            raise fail(
                PlanError,
                "TDI001",
                f"{workers} workers cannot be laid out as tensor {self.tensor} x pipeline {self.pipeline}",
                owner=OWNER,
            )
        return Layout(data=data, tensor=self.tensor, pipe=self.pipeline)

    @hookimpl
    def launch(self, run: Run) -> Sequence[ProcessSpec]:
        """The workers, on this machine, unless another launcher has started them. Each gets its share of the cores."""
        from nlpkernel_torchdist import launchers

        if self.workers == 1 or launchers.place() is not None:
            return ()
        if (left := launchers.leftover()) is not None:
            run.notice("communicator torchdist", left, level="warning")
        own = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.workers))}
        environment = {name: os.environ.get(name, value) for name, value in own.items()}
        return [
            ProcessSpec(name=f"worker-{rank}", rank=rank, environment=environment)
            for rank in range(self.workers)
        ]

    @hookimpl
    def join(self, run: Run) -> Post | None:
        """Take the place that another launcher gave this process."""
        from nlpkernel_torchdist import launchers

        place = launchers.place()
        if place is None:
            if (left := launchers.leftover()) is not None:
                run.notice("communicator torchdist", left, level="warning")
            return None
        from nlpkernel_torchdist.joined import join

        return join(self, run, place)

    @hookimpl
    def open_group(self, run: Run) -> Group:
        """Meet the other workers."""
        from nlpkernel_torchdist.opening import open_group

        return open_group(self, run)
