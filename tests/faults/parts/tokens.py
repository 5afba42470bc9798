"""What servers and workers of a token test share: what is trained, and what must come of it.

Element `e` of every tensor counts the rounds that worker `e % workers` took part in, by a gradient of -1 there and a
rate of 1: so each byte of each shard tells whose pushes were applied, and how often.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from nlpkernel.context import Run
from nlpkernel.hookspecs.model import ParameterGroup
from nlpkernel.plan.train import Train
from nlpkernel_zmq import sockets
from nlpkernel_zmq.component import ZmqPs

#: Name to type and shape: some lie on several pieces of 4096 bytes, some share one.
TENSORS: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
    "wide": (torch.float32, (70, 90)),
    "small": (torch.float64, (7,)),
    "double": (torch.float64, (1700,)),
    "scalar": (torch.float32, ()),
    "last": (torch.float32, (0,)),
}
CHUNK = 4096


@attrs.frozen(kw_only=True)
class Given:
    """What a process of a token test is told. Everything but `number` and `worker` is the same in all of them."""

    folder: str
    launch: str
    workers: int
    servers: int
    rounds: int
    payload: str
    slots: int
    momentum: float
    seed: str
    timeout: float = 30.0
    pace: float = 0.004
    fetch: int = 0
    #: How many workers push; the others only hold a number.
    pushing: int = 0
    descriptors: int = 0
    #: How many elements the last tensor has.
    last: int = 3000
    worker: bool = False
    number: int = 0

    @property
    def path(self) -> Path:
        """The folder of the test."""
        return Path(self.folder)

    @property
    def shares(self) -> int:
        """Into how many shares a round is divided."""
        return self.pushing or self.workers

    def settings(self) -> ZmqPs:
        """Those of the communicator."""
        size = sum(-(-each.numel() * each.itemsize // 64) * 64 for each in self.tensors().values())
        return ZmqPs(
            workers=self.workers,
            servers=self.servers,
            payload=self.payload,
            replay=self.slots * (size + 64 * self.servers * len(TENSORS)),
            chunk=CHUNK,
            timeout=self.timeout,
        )

    def tensors(self) -> dict[str, Tensor]:
        """What is trained, as it begins."""
        made = {name: torch.zeros(shape, dtype=kind) for name, (kind, shape) in TENSORS.items()}
        return {**made, "last": torch.zeros(self.last)}

    def run(self) -> Run:
        """The run, as far as a communicator asks for it."""
        return Run(
            name="tokens",
            folder=self.path / "run",
            cache=self.path,
            train=Train(steps=self.rounds),
            rank=self.number if self.worker else -1,
            world=self.workers,
            process=f"{'worker' if self.worker else 'server'}-{self.number}",
            launch=self.launch,
        )

    def make(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """The optimizer of the plan."""
        return torch.optim.SGD(
            [
                {"params": list(each.tensors), "names": list(each.names), "lr": 1.0, "peak": 1.0}
                for each in groups
            ],
            lr=1.0,
            momentum=self.momentum,
        )

    def takes_part(self, worker: int, round: int) -> bool:
        """Whether a worker has anything in a round."""
        return worker != 1 or round % 7 != 3


class Expected:
    """The one true course, of one counter for each worker and type."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self.values = {
            kind: torch.zeros(given.shares, dtype=kind, requires_grad=True)
            for kind in (torch.float32, torch.float64)
        }
        self.optimizer = torch.optim.SGD(list(self.values.values()), lr=1.0, momentum=given.momentum)

    def step(self, round: int) -> None:
        """A round is over."""
        part = [-float(self._given.takes_part(worker, round)) for worker in range(self._given.shares)]
        for kind, value in self.values.items():
            value.grad = torch.tensor(part, dtype=kind)
        self.optimizer.step()

    def wrong(self, named: Mapping[str, Tensor], momentum: bool = False) -> list[str]:
        """The first counter of each tensor that is not exact, in words."""
        found = []
        for name, tensor in named.items():
            value = self.values[tensor.dtype]
            if momentum:
                value = self.optimizer.state[value]["momentum_buffer"]
            flat = tensor.detach().reshape(-1)
            should = value.detach().repeat(-(-flat.numel() // value.numel()))[: flat.numel()]
            if not torch.equal(flat, should):
                bad = (flat != should).nonzero().view(-1)
                at = int(bad[0])
                found.append(
                    f"{name}[{at}] of worker {at % self._given.shares} is {float(flat[at])}, not {float(should[at])}; "
                    f"{bad.numel()} of {flat.numel()} are wrong, the last is [{int(bad[-1])}]"
                )
        return found


def begin(table: Mapping[str, Any]) -> Given:
    """In the process: a session, temporary files and an output of its own."""
    given = Given(**table)
    os.setsid()
    os.environ["TMPDIR"] = str(given.path / "tmp")
    output = os.open(given.path / f"{given.run().process}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    import logging
    import tempfile

    tempfile.tempdir = None
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s {os.getpid()} %(message)s", force=True
    )
    torch.set_num_threads(1)
    between(given)
    return given


def between(given: Given) -> None:
    """Let all connections go by way of the proxy, where there is one."""
    plain = sockets.dealer

    def dealer(context: Any, where: str, largest: int) -> Any:
        name = where.rpartition("/")[2]
        other = given.path / "proxy" / name
        return plain(context, f"ipc://{other}" if other.exists() else where, largest)

    sockets.dealer = dealer  # type: ignore[assignment]


def note(given: Given, name: str, value: object) -> None:
    """Say something to the test, in whole files."""
    path = given.path / name
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)
