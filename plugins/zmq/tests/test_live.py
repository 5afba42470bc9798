"""Weights that are read while a run trains are those of one moment, and whoever reads them can do nothing else."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import zmq

from nlpkernel import open_model
from nlpkernel.engine.opening import activate, reading
from nlpkernel.errors import UsageError
from nlpkernel.plan import Plan
from nlpkernel_zmq import sockets
from nlpkernel_zmq.live import LiveWeights, Weights
from nlpkernel_zmq.memory import host
from nlpkernel_zmq.release import RELEASE
from nlpkernel_zmq.security.keys import Ticket
from nlpkernel_zmq.wire import messages as m

from .parts.machines import PATIENCE, Site, ended, until

STEPS, ADDRESS = 60, "127.0.0.2"
#: So that whoever reads comes to something before the run is over.
SLOW = '''
import time
from nlpkernel import component, hookimpl


@component
class Slow:
    """Sleeps after each update."""

    @hookimpl
    def subscribe(self, run, bus):
        """It wants no events."""

    @hookimpl
    def update_applied(self, run, progress, applied):
        """Sleep."""
        time.sleep(0.1)
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("read"))
    yield made
    made.close()


def saved(site: Site, name: str) -> dict[int, dict[str, torch.Tensor]]:
    """The weights of each version, by its step."""
    folder = site.root / "runs" / name
    run, hooks, composition = activate(Plan.load(folder / "plan.toml"), folder)
    with reading(run, hooks, composition) as store:
        names = {info.step: info.name for info in store.list()}
    found = {}
    for step, version in names.items():
        model = open_model(folder, version=version, device="cpu").model
        found[step] = {key: each.detach() for key, each in model.named_parameters()}
    return found


def assert_saved(weights: Weights, versions: dict[int, dict[str, torch.Tensor]]) -> None:
    version = versions[weights.step]
    assert weights.tensors.keys() == version.keys()
    differ = [name for name, each in weights.tensors.items() if not torch.equal(each, version[name])]
    assert differ == [], f"after step {weights.step}"


EVERY = {"checkpoint": {"use": "store", "every": 1, "keep": {"last": 2 * STEPS}}}
MONITOR = [{"use": "./slow.py:Slow"}]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_is_read_while_a_run_trains_is_what_it_saves(site: Site, mode: str) -> None:
    (site.root / "slow.py").write_text(SLOW)
    sections = {"monitor": MONITOR, **(EVERY if mode == "sync" else {})}
    site.plan(mode, STEPS, servers=2, mode=mode, sections=sections)
    process = site.start("run", f"{mode}.json", "--restarts", "2")
    until((site.servers(mode) / "launch").exists, "the servers")
    read: list[Weights] = []
    with LiveWeights.of(site.root / "runs" / mode, timeout=PATIENCE) as live:
        while len(read) < 5:
            weights = live.newest()
            if not read or weights.step > read[-1].step:
                read.append(weights)
            if len(read) == 2:
                read.append(live.after(weights.step + 6))
                assert read[-1].step == weights.step + 6
                with pytest.raises(
                    UsageError, match=rf"ZPS014 the run is at step \d+, beyond step {weights.step}"
                ):
                    live.after(weights.step)
                started = re.findall(r"server-1 started as process (\d+)", site.log(mode))
                # The next one does not know the reader.
                os.kill(int(started[-1]), signal.SIGKILL)
            if weights.step >= STEPS:
                break
    code, told = ended(process)
    assert code == 0, told
    steps = [each.step for each in read]
    assert len(steps) >= 3
    assert steps == sorted(steps)
    assert all(each.updates == each.step for each in read)
    if mode == "sync":
        versions = saved(site, mode)
        for each in read:
            if each.step:
                assert_saved(each, versions)
    with pytest.raises(UsageError, match="ZPS014 no servers of"):
        LiveWeights.of(site.root / "runs" / mode)


@pytest.fixture(scope="module")
def guarded(site: Site) -> Site:
    """A run whose servers listen, and that goes on until it is ended."""
    site.plan("guarded", 100_000, servers=2, listen=ADDRESS, local=2)
    site.run("guarded")
    until((site.servers("guarded") / "shard-1.endpoint").exists, "the second server to listen")
    return site


def test_a_reader_of_another_machine_reads_with_the_key_for_that(guarded: Site) -> None:
    keys = guarded.servers("guarded") / "keys" / "reader"
    assert keys.stat().st_mode & 0o077 == 0
    with LiveWeights.at_endpoint(guarded.endpoint("guarded"), keys, timeout=PATIENCE) as live:
        first = live.newest()
        second = live.after(first.step + 200)
        assert set(first.tensors) == set(second.tensors)
        assert any(not torch.equal(each, second.tensors[name]) for name, each in first.tensors.items())


class Sly:
    """Speaks with a reader's key, and says what it likes."""

    def __init__(self, site: Site, name: str) -> None:
        self.ticket = Ticket.read(site.servers("guarded") / "keys" / "reader")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = sockets.dealer(self._context, site.endpoint("guarded", name), 1 << 20, self.ticket)

    def hello(self, **changes: Any) -> m.Hello:
        said = m.Hello(
            run=self.ticket.run, role="reader", number=0, incarnation=7, release=RELEASE, host=host()
        )
        return attrs.evolve(said, **changes)

    def says(self, message: m.Message) -> m.Message:
        assert self._socket.poll(int(PATIENCE * 1000), zmq.POLLOUT)
        self._socket.send(m.pack(message))
        assert self._socket.poll(int(PATIENCE * 1000)), "no answer"
        return m.unpack(self._socket.recv_multipart()[0])

    def close(self) -> None:
        self._socket.close(0)
        self._context.term()


@pytest.mark.parametrize("role", ["worker", "pulse", "shard"])
@pytest.mark.parametrize("name", ["control", "shard-1"])
def test_case_14_a_reader_s_key_is_nobody_else_s(guarded: Site, name: str, role: str) -> None:
    sly = Sly(guarded, name)
    told = sly.says(sly.hello(role=role, number=1))
    sly.close()
    assert isinstance(told, m.Reject)
    assert (told.code, "the keys are those of a reader" in told.text) == ("key", True)


@pytest.mark.parametrize(
    "message",
    [
        m.End(round=0, share=0, of=1, step=0, empty=True),
        m.Begin(what="state"),
        m.Put(what="schema", start=0, stop=0, total=0),
        m.Fetch(what="optimizer", round=-1),
        m.Hold(hold=True),
        m.Claim(end=5),
    ],
    ids=lambda message: type(message).__name__,
)
def test_case_14_a_reader_may_read_parameters_and_say_nothing_else(guarded: Site, message: m.Message) -> None:
    sly = Sly(guarded, "shard-1")
    assert isinstance(sly.says(sly.hello()), m.Welcome)
    told = sly.says(message)
    still = sly.says(m.Fetch(what="schema", round=-1))
    sly.close()
    assert isinstance(told, m.Reject)
    assert told.code == "kind"
    assert isinstance(still, m.State)


def test_case_14_a_reader_is_nobody_to_the_coordinator(guarded: Site) -> None:
    sly = Sly(guarded, "control")
    assert isinstance(sly.says(sly.hello()), m.Welcome)
    told = [sly.says(each) for each in (m.Enlist(), m.Hold(hold=True), m.Meet(key="-1:1"))]
    sly.close()
    assert [(type(each), getattr(each, "code", "")) for each in told] == [(m.Nack, "hello")] * 3


def test_a_run_whose_servers_are_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no servers of .* run on this machine"):
        LiveWeights.of(tmp_path)
