"""The communicator `zmq-ps`. Light: torch and zmq are imported when a process comes to its part."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel_zmq import fitting
from nlpkernel_zmq.codes import OWNER as OWNER
from nlpkernel_zmq.machines.leases import Leases

if TYPE_CHECKING:
    import torch

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.communicator import Group
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import ParameterGroup

#: The variable that says, in the processes of a run, that there are servers, and how many.
SERVED = "NLPKERNEL_ZMQ_SERVERS"


@component
class ZmqPs:
    """Workers that send their gradients to servers, which hold the parameters and the optimizer's state.

    Each update is the sum over the whole window, so the loss curve is that of one process. A server that is lost is
    started again by itself, and nothing that was sent to it is lost or counted twice.
    """

    workers: int = setting(default=2, ge=1, help="processes that compute gradients")
    servers: int = setting(
        default=1, ge=1, help="processes among which parameters and optimizer state are divided"
    )
    mode: Literal["sync", "async", "ssp"] = setting(
        default="sync",
        help="sync: each window is divided among the workers, and an update is the sum over it, as in one process; "
        "async: each worker computes whole windows, which are applied as they come; ssp: the same, with a bound on how "
        "far a worker may be ahead of the slowest",
    )
    staleness: int = setting(
        default=3, ge=0, help="with ssp: by how many windows a worker may be ahead of the slowest"
    )
    payload: Literal["auto", "memory", "frames"] = setting(
        default="auto",
        help="how gradients and parameters travel on one machine: by shared memory, or in frames over a socket; auto: "
        "shared memory where the system has it",
    )
    replay: int = setting(
        default=256 * 1024 * 1024,
        ge=0,
        unit="bytes",
        help="gradients that each worker keeps, to send them again to a server that was lost; the servers write a "
        "snapshot before they would be too many. 0: a lost server ends the run, which resumes from a version",
    )
    chunk: int = setting(
        default=1024 * 1024,
        ge=4096,
        le=64 * 1024 * 1024,
        unit="bytes",
        help="how much of a gradient one message is about",
    )
    compressor: Any = extension(
        "compressor",
        default=None,
        help="fewer bytes for gradients on their way to the servers: fp16, bf16, int8, topk, and powersgd where each "
        "piece has whole parameters; on one machine it chooses frames",
    )
    listen: str | None = setting(
        default=None,
        help="the address, or the interface, of this machine at which servers wait for workers of other machines, with "
        "keys that are made for the run; without it no port is opened",
    )
    local: int | None = setting(
        default=None,
        ge=1,
        help="how many of the workers are started here; the others join from other machines (`nlpkernel join`). "
        "Without it: all",
    )
    down: Any = extension(
        "compressor",
        default=None,
        help="fewer bytes for what the servers change, on its way to the workers: bf16, fp16, int8 or topk; with mode "
        "sync",
    )
    device: str = setting(
        default="auto", help="where workers compute; auto: the accelerator of the worker's number"
    )
    silence: float = setting(
        default=30.0,
        ge=0,
        unit="seconds",
        help="a worker without a beat for so long is lost, and the others do its part; 0: never",
    )
    timeout: float = setting(
        default=600.0,
        gt=0,
        unit="seconds",
        help="how long a worker waits for the others, and for the servers",
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.payload == "memory" and not hasattr(os, "memfd_create"):
            yield "payload", "shared memory between processes needs Linux (memfd); use frames"
        if self.payload == "memory" and self.compresses:
            yield "payload", "what a compressor makes travels in frames; use frames, or auto"
        if self.down is not None and self.mode != "sync":
            yield "down", "workers that do not wait for each other have different parameters; use mode sync"
        if self.listen in ("*", "0.0.0.0", "::", ""):
            yield "listen", "name the one address, or interface, at which the other machines reach this one"
        if self.here > self.workers:
            yield "local", f"there are {self.workers} workers in all"
        if self.here < self.workers and self.listen is None:
            yield (
                "local",
                "workers of other machines need `listen`, the address at which the servers wait for them",
            )
        if self.here < self.workers and self.payload == "memory":
            yield "payload", "there is no memory to share with workers of other machines; use auto, or frames"

    #: What to do instead of `nlpkernel render`.
    rendered = (
        "a batch script starts `nlpkernel run` on the machine of the servers, and on each other one the "
        "`nlpkernel join` that the run says (docs/parameter-server.md)"
    )
    #: The servers have it, so that what it says of sizes is not a worker's.
    elsewhere = ("down",)

    @property
    def unlike(self) -> str | None:
        """Why no two runs of the plan have the same numbers; None where they have."""
        if self.mode == "sync":
            return None
        return f"with mode = {self.mode!r} it depends on who is faster; `sync` repeats itself"

    @property
    def here(self) -> int:
        """How many workers are started on this machine: numbers 0 up to that."""
        return self.workers if self.local is None else self.local

    @property
    def compresses(self) -> bool:
        """Whether anything is to travel in fewer bytes."""
        return self.compressor is not None or self.down is not None

    def leases(self) -> Leases | None:
        """Who computes which window, where not all compute each together."""
        if self.mode == "sync":
            return None
        return Leases(staleness=self.staleness if self.mode == "ssp" else None)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """What one worker holds, and a note on what a server does."""
        return fitting.estimate(self, facts)

    @hookimpl
    def launch(self, run: Run) -> Sequence[ProcessSpec]:
        """The servers and the workers, on this machine. Each gets its share of the cores."""
        from nlpkernel.supervise.post import WORLD
        from nlpkernel_zmq.security.keys import START

        share = str(max(1, (os.cpu_count() or 1) // self.here))
        own = {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", share),
            SERVED: str(self.servers),
            # Also those that join.
            WORLD: str(self.workers),
            START: secrets.token_hex(8),
        }
        servers = [
            ProcessSpec(name=f"server-{number}", environment=own, alone=self.replay > 0)
            for number in range(self.servers)
        ]
        workers = [
            # The first one keeps the run's folder and its versions: without it the run begins again from one.
            ProcessSpec(name=f"worker-{rank}", rank=rank, environment=own, alone=rank > 0)
            for rank in range(self.here)
        ]
        return [*servers, *workers]

    @hookimpl
    def serve(
        self,
        run: Run,
        make_optimizer: Callable[[Sequence[ParameterGroup]], torch.optim.Optimizer],
    ) -> None:
        """Be the server of this process's name."""
        from nlpkernel_zmq.server.serve import serve

        serve(self, run, make_optimizer)

    @hookimpl
    def open_group(self, run: Run) -> Group:
        """Find the servers, and meet the other workers."""
        from nlpkernel_zmq.worker.opening import open_group

        return open_group(self, run)
