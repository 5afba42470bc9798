"""A worker of a token test: rounds, and after each one what it took up is looked at, number by number."""

from __future__ import annotations

import os
import random
import runpy
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

_shared = runpy.run_path(str(Path(__file__).with_name("tokens.py")))


class Work(NamedTuple):
    """What an exchange asks of the engine's."""

    named: list[tuple[str, torch.Tensor]]
    clip: float | None


def main(table: dict[str, Any]) -> None:
    """All rounds."""
    from nlpkernel.engine.capture import plain_groups
    from nlpkernel.hookspecs.model import ParameterGroup
    from nlpkernel.supervise.heartbeat import Pulse
    from nlpkernel_zmq.worker import words
    from nlpkernel_zmq.worker.exchange import Exchange
    from nlpkernel_zmq.worker.link import Link

    given = _shared["begin"](table)
    note, rank = _shared["note"], given.number
    draw = random.Random(f"{given.seed} worker {rank}")
    named = {name: each.requires_grad_() for name, each in given.tensors().items()}
    mine = {
        name: (torch.arange(each.numel()) % given.shares == rank).to(each.dtype).reshape(each.shape)
        for name, each in named.items()
    }
    expected = _shared["Expected"](given)
    progress = os.open(given.path / f"progress-{rank}", os.O_WRONLY | os.O_CREAT)

    link = Link(given.launch, rank, given.timeout, Pulse())
    link.join()
    names = list(named)
    groups = [
        ParameterGroup(names=part, tensors=[named[name] for name in part], decay=decay, tags=frozenset())
        for part, decay in ((names[::2], True), (names[1::2], False))
    ]
    optimizer = given.make(groups)
    exchange = Exchange(given.settings(), link, Work(list(named.items()), None), groups, whole=False)
    if rank == 0:
        note(given, "uploading", True)
        exchange.upload(optimizer.state, plain_groups(optimizer), named, step=0, updates=0)
    began = link.meet(words.packed(exchange.round))
    exchange.began(int(words.plain(began[0])))

    for round in range(given.rounds):
        os.pwrite(progress, b"%8d" % round, 0)
        time.sleep(draw.random() * 2 * given.pace)
        exchange.begin(rank, given.shares, round)
        empty = not given.takes_part(rank, round)
        if not empty:
            # Two micro-batches, of which the first counts nothing.
            for last, factor in ((False, 0.0), (True, -1.0)):
                exchange.gradients.watch(last)
                for name in reversed(names):
                    (named[name] * mine[name] * factor).sum().backward()
            exchange.gradients.watch(False)
        exchange.end(empty=empty, scale=1.0, factor=1.0, sums={})
        for each in named.values():
            if each.grad is not None:
                # Whoever still reads it here sees what nobody pushed.
                each.grad.fill_(777.0)
                each.grad = None
        link.wait(lambda round=round: exchange.is_over(round), "the others")
        release = exchange.take_up(round)
        exchange.round += 1
        link.after(round)
        expected.step(round)
        wrong = expected.wrong(named)
        assert (release.number, release.applied) == (round, True)
        assert release.norm > 0
        assert not wrong, f"after round {round}: {wrong}"
        if rank == 0 and given.fetch and round % given.fetch == given.fetch - 1:
            state = {(key, name): value for name, key, value in exchange.fetch(round + 1)}
            assert set(state) == {("momentum_buffer", name) for name in names}, sorted(state)
            wrong = expected.wrong({name: value for (_, name), value in state.items()}, momentum=True)
            assert not wrong, f"momentum after round {round}: {wrong}"
    os.pwrite(progress, b"%8d" % given.rounds, 0)
    note(
        given,
        f"result-{rank}",
        {name: each.detach().reshape(-1)[: given.shares].tolist() for name, each in named.items()},
    )
    # Whatever was to befall it has, and so no server needs this worker again.
    over = given.path / "over"
    link.wait(over.exists, "the end of the test")
    link.meet(b"")
    link.close()


if __name__ == "faults_command":
    main(globals()["given"])
    sys.exit(0)
