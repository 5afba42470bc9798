"""A worker's end of the exchange and a shard without sockets, where the shard is lost and started again, and where what
it sends is: with compressors the parameters become bit for bit those of a run in which nothing was lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nlpkernel.hookspecs.model import ParameterGroup
from nlpkernel_torchdist.compress.cast import Cast
from nlpkernel_torchdist.compress.topk import TopK
from nlpkernel_zmq.component import ZmqPs
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.server.shard import Shard
from nlpkernel_zmq.server.snapshots import Snapshots
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.worker.exchange import Exchange
from nlpkernel_zmq.worker.link import Link, Server

SHAPE, WHO, ROUNDS = (40, 30), b"w", 6


def adam(groups: Any) -> torch.optim.Optimizer:
    made = torch.optim.AdamW([tensor for group in groups for tensor in group.tensors], lr=1e-2)
    for group in made.param_groups:
        group["peak"] = 1e-2
    return made


class Direct(Link):
    """One worker and one shard; what they say waits in rows. lose: which messages of the shard do not arrive."""

    def __init__(self, folder: Path, *, up: Any, down: Any) -> None:
        self._snapshots, self._up, self._down = Snapshots(folder, "launch"), up, down
        self.servers = [Server(0, None, generation=1)]  # type: ignore[arg-type]
        self.back = self.went_on = lambda server: None
        self.took = lambda shard, params, payload: True
        self.lose: Callable[[m.Message], bool] = lambda message: False
        self.there: deque[tuple[m.Message, Any]] = deque()
        self.here: deque[tuple[m.Message, Any]] = deque()
        self.pushed: list[tuple[int, int, str, bytes]] = []
        self.hellos = 0
        self.start()

    def start(self) -> None:
        """Start the shard, or start it again; all that was under way is gone."""
        self.there.clear()
        self.here.clear()
        self.shard = Shard(
            0,
            self._snapshots,
            adam,
            workers=1,
            send=self._from,
            ready=self._ready,
            notice=lambda text: None,
            share_memory=False,
            compressor=self._up(),
            down=self._down(),
        )
        self.shard.recover()

    def come_back(self) -> None:
        """The shard ends, another one is started, and the worker says hello to it."""
        self.start()
        self._greet(2)
        self.wait(lambda: not self.there and not self.here, "all of it")

    def _greet(self, generation: int) -> None:
        self.hellos += 1
        hello = m.Hello(run="r", role="worker", number=0, incarnation=1, release="", host="")
        self.shard.hello(WHO, hello)
        welcome = m.Welcome(generation=generation, beat=1.0, round=self.shard.next, began=self.shard.began)
        self.here.append((welcome, None))
        self.shard.welcome(WHO)

    def _from(self, who: bytes, message: m.Message, payload: Any) -> None:
        if not self.lose(message):
            self.here.append((message, None if payload is None else bytes(payload)))

    def _ready(self, round: int, told: Told, number: int) -> None:
        self.shard.commit(Decision(round, math.sqrt(told.square), told.finite, round), 0, (0,))

    def call_shards(self, arena: Any) -> None:
        self._greet(1)
        self.here.clear()

    def _say_hello(self, server: Server) -> None:
        self._greet(3)

    def send(self, server: Server, message: m.Message, payload: Any = None) -> None:
        data = None if payload is None else bytes(payload)
        if isinstance(message, m.Push):
            assert data is not None
            self.pushed.append((message.round, message.start, message.codec, data))
        self.there.append((message, data))

    def wait(self, until: Callable[[], bool], what: str) -> None:
        while not until():
            assert self.there or self.here, f"nobody says anything, and {what} does not come"
            if self.there:
                message, payload = self.there.popleft()
                self.shard.handle(WHO, message, None if payload is None else memoryview(payload))
            else:
                message, payload = self.here.popleft()
                view = None if payload is None else memoryview(payload)
                self._from_shard(self.servers[0], message, view)


class Worker:
    """One that trains a matrix against noise of its own."""

    def __init__(self, folder: Path, *, up: Any = lambda: TopK(0.1), down: Any = lambda: TopK(0.2)) -> None:
        self.link = Direct(folder, up=up, down=down)
        self.parameter, self.compressor = torch.nn.Parameter(torch.zeros(SHAPE)), up()
        named = [("w", self.parameter)]
        work = SimpleNamespace(named=named, clip=1.0)
        groups = [ParameterGroup(names=["w"], tensors=[self.parameter], decay=True, tags=frozenset())]
        plan = ZmqPs(workers=1, chunk=4096, compressor=object(), down=object())
        self.exchange = Exchange(
            plan, self.link, work, groups, whole=False, compressor=self.compressor, down=down()
        )  # type: ignore[arg-type]
        groups_ = [{"lr": 1e-2, "peak": 1e-2}]
        self.exchange.upload({}, groups_, dict(named), step=0, updates=0)
        self.exchange.began(0)

    def push(self) -> None:
        """The backward pass of a window."""
        exchange = self.exchange
        exchange.begin(0, 1, exchange.round)
        exchange.gradients.watch(True)
        noise = torch.randn(SHAPE, generator=torch.Generator().manual_seed(exchange.round))
        (self.parameter * noise).sum().backward()
        exchange.gradients.watch(False)
        exchange.end(empty=False, scale=1.0, factor=1.0, sums={})
        self.parameter.grad = None

    def window(self) -> None:
        self.push()
        self.finish()

    def finish(self) -> None:
        self.exchange.take_up(self.exchange.round)
        self.exchange.round += 1

    @property
    def state(self) -> tuple[torch.Tensor, ...]:
        """Of the worker, and of the shard."""
        return self.parameter.detach().clone(), self.link.shard.model.memory.tensor.clone()


@pytest.fixture
def reference(tmp_path: Path) -> tuple[torch.Tensor, ...]:
    worker = Worker(tmp_path / "reference")
    for _ in range(ROUNDS):
        worker.window()
    assert worker.link.hellos == 1
    assert worker.compressor.owed()["w"].any()
    assert not torch.equal(worker.state[0].view(-1).view(torch.uint8), worker.state[1][: 4 * 1200])
    return worker.state


@pytest.mark.parametrize("at", [1, 3, ROUNDS - 1])
@pytest.mark.parametrize("half", [False, True])
def test_item_10_what_is_sent_again_is_the_same_and_counts_once(tmp_path, reference, at, half):
    worker = Worker(tmp_path / "run")
    for number in range(ROUNDS):
        if number == at:
            if half:
                worker.push()
            worker.link.come_back()
            if half:
                worker.finish()
                continue
        worker.window()
    first: dict[tuple[int, int], tuple[str, bytes]] = {}
    again = 0
    for round, start, codec, data in worker.link.pushed:
        assert codec == "topk"
        assert first.setdefault((round, start), (codec, data)) == (codec, data)
        again += 1
    assert again > len(first) == 2 * ROUNDS
    assert all(torch.equal(*pair) for pair in zip(worker.state, reference, strict=True))


def test_parameters_whose_base_did_not_come_are_asked_for_as_a_whole(tmp_path, reference):
    worker = Worker(tmp_path / "run")
    for number in range(ROUNDS):
        # As if a piece of the round before had been dropped on its way: the next one adds to nothing that is here.
        worker.push()
        if number == 2:
            worker.exchange._after[0][1] = 0
        worker.finish()
    assert worker.link.hellos == 2
    assert all(torch.equal(*pair) for pair in zip(worker.state, reference, strict=True))


def test_a_share_of_a_worker_that_is_gone_travels_without(tmp_path):
    """Its debts are gone too, and those of whoever does it are not paid twice."""
    worker = Worker(tmp_path / "run", up=lambda: TopK(0.1), down=lambda: Cast("bf16", torch.bfloat16))
    exchange = worker.exchange
    exchange.begin(0, 1, 0, leased=True)
    exchange.gradients.watch(True)
    worker.parameter.sum().backward()
    exchange.end(empty=False, scale=1.0, factor=1.0, sums={})
    assert {codec for _, _, codec, _ in worker.link.pushed} == {""}
    exchange.take_up(0)
    assert worker.parameter.detach().lt(0).all()
