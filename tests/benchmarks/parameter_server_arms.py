"""One process of tests/benchmarks/parameter_server.py.

    python parameter_server_arms.py '{"arm": ..., "rank": ..., ...}'

Ranks are workers; those from `workers` on are servers. A worker says "ready", and answers each line with the seconds
of each of so many steps: {"steps": 10} gives {"seconds": [...], "right": true}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

RATE = 0.5
#: Tensors that the payload is divided into, as a model is.
TENSORS = 16

#: Exchanges and updates; the parameters are new afterwards.
Step = Callable[[], object]


def tensors(asked: dict[str, Any]) -> list[nn.Parameter]:
    """The parameters: zeros."""
    size = asked["bytes"] // 4 // TENSORS
    return [nn.Parameter(torch.zeros(size)) for _ in range(TENSORS)]


# -- Gloo: all-reduce, then each worker steps --------------------------------------------------------------------------


@contextmanager
def gloo(asked: dict[str, Any], parameters: list[nn.Parameter]) -> Iterator[Step]:
    """One all-reduce of all gradients, which are views of one tensor, as DDP's buckets at their best."""
    store = dist.FileStore(f"{asked['folder']}/gloo", asked["workers"])
    dist.init_process_group("gloo", store=store, rank=asked["rank"], world_size=asked["workers"])
    flat = torch.zeros(sum(each.numel() for each in parameters))
    views = flat.split([each.numel() for each in parameters])
    optimizer = torch.optim.SGD(parameters, lr=RATE)

    def step() -> None:
        dist.all_reduce(flat)
        optimizer.step()

    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view
    try:
        yield step
    finally:
        dist.destroy_process_group()


# -- torch RPC: a parameter server as its tutorials write it -----------------------------------------------------------


class RpcServer:
    """Adds up the gradients of all workers, steps, and answers all with the parameters."""

    def __init__(self, workers: int, sizes: list[int]) -> None:
        import threading

        self._workers = workers
        self._parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
        self._optimizer = torch.optim.SGD(self._parameters, lr=RATE)
        self._lock = threading.Lock()
        self._future: Any = torch.futures.Future()
        self._came = 0

    @staticmethod
    @dist.rpc.functions.async_execution
    def push(server: Any, gradients: list[Tensor]) -> Any:
        """A worker's gradients; its parameters once all have come."""
        self = server.local_value()
        with self._lock:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                if self._came:
                    parameter.grad += gradient
                else:
                    parameter.grad = gradient
            self._came += 1
            future = self._future
            if self._came == self._workers:
                self._optimizer.step()
                self._came, self._future = 0, torch.futures.Future()
                future.set_result([each.detach() for each in self._parameters])
        return future


def rpc_options(asked: dict[str, Any]) -> Any:
    return dist.rpc.TensorPipeRpcBackendOptions(
        init_method=f"file://{asked['folder']}/rpc", num_worker_threads=8, rpc_timeout=60
    )


@contextmanager
def rpc(asked: dict[str, Any], parameters: list[nn.Parameter]) -> Iterator[Step]:
    """Push all gradients, get all parameters."""
    world = asked["workers"] + 1
    dist.rpc.init_rpc(
        f"worker{asked['rank']}", rank=asked["rank"], world_size=world, rpc_backend_options=rpc_options(asked)
    )
    if asked["rank"] == 0:
        SHARED["server"] = dist.rpc.remote(
            "server", RpcServer, args=(asked["workers"], [each.numel() for each in parameters])
        )
    server = dist.rpc.rpc_sync("worker0", shared_server) if asked["rank"] else SHARED["server"]

    def step() -> None:
        gradients = [each.grad for each in parameters]
        values = dist.rpc.rpc_sync("server", RpcServer.push, args=(server, gradients))
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)

    try:
        yield step
    finally:
        dist.rpc.shutdown(graceful=False)


SHARED: dict[str, Any] = {}


def shared_server() -> Any:
    """The server that the first worker made."""
    while "server" not in SHARED:
        time.sleep(0.01)
    return SHARED["server"]


# -- ours ------------------------------------------------------------------------------------------------------------


def settings(asked: dict[str, Any]) -> Any:
    from nlpkernel_zmq.component import ZmqPs

    return ZmqPs(
        workers=asked["workers"],
        servers=asked["servers"],
        payload="memory" if asked["arm"] == "memory" else "frames",
        replay=0,
        timeout=60.0,
    )


def run_of(asked: dict[str, Any], process: str) -> Any:
    from nlpkernel.context import Run
    from nlpkernel.plan.train import Train

    folder = Path(asked["folder"])
    run = Run(name="bench", folder=folder, cache=folder / "cache", train=Train(steps=1, batch=1))
    run.launch, run.world, run.process = asked["launch"], asked["workers"], process
    return run


def serve(asked: dict[str, Any]) -> None:
    from nlpkernel_zmq.server.serve import serve as be_server

    def make(groups: Any) -> torch.optim.Optimizer:
        made = torch.optim.SGD([{"params": list(group.tensors), "peak": RATE} for group in groups], lr=RATE)
        return made

    be_server(settings(asked), run_of(asked, f"server-{asked['rank'] - asked['workers']}"), make)


@contextmanager
def ours(asked: dict[str, Any], parameters: list[nn.Parameter]) -> Iterator[Step]:
    """Push all gradients, get all parameters."""
    from nlpkernel_zmq.worker.exchange import Exchange
    from nlpkernel_zmq.worker.link import Link

    run = run_of(asked, f"worker-{asked['rank']}")
    link = Link(run.launch, asked["rank"], 60.0, run.pulse)
    link.join()
    named = [(f"p{number}", each) for number, each in enumerate(parameters)]
    work: Any = SimpleNamespace(named=named, clip=None)
    group = SimpleNamespace(names=[name for name, _ in named], decay=True, tags=frozenset())
    exchange = Exchange(settings(asked), link, work, [group], whole=False)
    if asked["rank"] == 0:
        exchange.upload({}, [{"lr": RATE, "peak": RATE}], dict(named), step=0, updates=0)
    link.meet(b"")
    exchange.began(0)

    def step() -> None:
        exchange.begin(asked["rank"], asked["workers"], exchange.round)
        exchange.end(empty=False, scale=1.0, factor=1.0, sums={})
        exchange.take_up(exchange.round)
        exchange.round += 1

    try:
        yield step
    finally:
        link.close()


def work(asked: dict[str, Any]) -> None:
    """Be a worker."""
    parameters = tensors(asked)
    arm = {"gloo": gloo, "rpc": rpc}.get(asked["arm"], ours)
    done = 0
    with arm(asked, parameters) as step:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            seconds = []
            for _ in range(json.loads(line)["steps"]):
                for parameter in parameters:
                    if parameter.grad is None:
                        parameter.grad = torch.empty_like(parameter)
                    # What a backward pass would have left.
                    parameter.grad.fill_(asked["rank"] + 1)
                start = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - start)
                done += 1
            total = asked["workers"] * (asked["workers"] + 1) / 2
            right = all(bool((each == -RATE * done * total).all()) for each in parameters)
            print(json.dumps({"seconds": seconds, "right": right}), flush=True)


if __name__ == "__main__":
    what = json.loads(sys.argv[1])
    torch.set_num_threads(what["threads"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if what["rank"] < what["workers"]:
        work(what)
    elif what["arm"] == "rpc":
        dist.rpc.init_rpc(
            "server",
            rank=what["workers"],
            world_size=what["workers"] + 1,
            rpc_backend_options=rpc_options(what),
        )
        dist.rpc.shutdown()
    else:
        serve(what)
