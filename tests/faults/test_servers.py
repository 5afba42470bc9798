"""Kills of a parameter server's processes under supervision: the others go on, and nothing is lost or counted twice."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .lab import PARTS, Lab, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

STEPS = 240


def sections(**communicator: Any) -> dict[str, Any]:
    return {
        "train": {"steps": STEPS, "evaluate": {"every": 60}, "log": {"every": 10}},
        "model": {"dropout": 0.0},
        "optimizer": {"lr": 0.01},
        "communicator": {"use": "zmq-ps", "workers": 2, **communicator},
        "checkpoint": {"use": "store", "every": 40},
        "monitor": [{"use": "jsonl"}, {"use": f"{PARTS / 'slow.py'}:Slow"}],
    }


class Ran:
    """A run while it goes on, and what it left."""

    def __init__(self, folder: Path, **communicator: Any) -> None:
        self.lab = Lab(folder, **sections(**communicator))
        self.folder = self.lab.run
        self.process = self.lab.cold("run", "plan.json", "-q", "--restarts", "4")

    @property
    def log(self) -> str:
        path = self.folder / "logs/run.log"
        return path.read_text() if path.exists() else ""

    def step(self, process: str = "worker-0") -> int:
        told = re.findall(rf" {process} .* Logged step=(\d+)", self.log)
        return int(told[-1]) if told else 0

    def kill(self, process: str, step: int) -> None:
        assert until(lambda: self.step() >= step, 90.0), self.process.told + self.log[-2000:]
        pid = re.findall(rf"{process} started as process (\d+)", self.log)[-1]
        os.kill(int(pid), signal.SIGKILL)

    def end(self) -> Ran:
        self.process.end()
        return self

    @property
    def losses(self) -> list[float]:
        events = [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]
        return [loss for event in events for loss in event.get("losses", ())]

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return found


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[float]]:
    made: dict[int, list[float]] = {}

    def get(servers: int) -> list[float]:
        if servers not in made:
            ran = Ran(tmp_path_factory.mktemp("unbroken"), servers=servers).end()
            made[servers] = ran.losses
            assert len(ran.losses) == STEPS
            assert not (ran.folder / ".servers").exists()
        return made[servers]

    return get


def test_servers_that_are_killed_come_back_alone_and_the_losses_are_those_of_the_unbroken_run(
    tmp_path: Path, unbroken: Callable[[int], list[float]]
) -> None:
    ran = Ran(tmp_path, servers=2)
    ran.kill("server-1", 30)
    assert until(lambda: "server 1 goes on from its snapshot" in ran.log, 60.0), ran.log[-2000:]
    ran.kill("server-0", 90)
    ran.end()
    assert ran.losses == unbroken(2)
    assert "server 0 goes on from its snapshot" in ran.log
    assert len(re.findall(r"worker-\d started as process", ran.log)) == 2
    assert not (ran.folder / ".servers").exists()


def test_a_worker_that_is_killed_comes_back_alone_and_the_other_does_its_share_until_then(
    tmp_path: Path, unbroken: Callable[[int], list[float]]
) -> None:
    ran = Ran(tmp_path, servers=2)
    ran.kill("worker-1", 50)
    ran.end()
    assert "worker 0 does share 1 of round" in ran.log
    assert "worker 1 comes in after window" in ran.log
    assert len(re.findall(r"worker-0 started as process", ran.log)) == 1
    assert len(ran.losses) == STEPS
    worst = max(abs(a - b) / abs(b) for a, b in zip(ran.losses, unbroken(2), strict=True))
    assert worst <= 2e-5, f"losses differ by {worst:.1e}"


@pytest.mark.parametrize(("mode", "servers"), [("async", 2), ("ssp", 1)])
def test_without_rounds_a_worker_and_a_server_are_killed_and_each_window_is_trained_on_once(
    tmp_path: Path, mode: str, servers: int
) -> None:
    ran = Ran(tmp_path, servers=servers, mode=mode)
    ran.kill("worker-1", 40)
    assert until(lambda: "worker 1 comes into the run" in ran.log, 60.0), ran.log[-2000:]
    # What the worker pushed that is gone it does not get again.
    last = f"server-{servers - 1}"
    ran.kill(last, ran.step() + 1)
    ran.end()
    updates = re.findall(rf"{last} .*after (\d+) updates", ran.log)
    assert updates, "the server went on from a snapshot"
    assert len(re.findall(r"worker-0 started as process", ran.log)) == 1
    assert ran.report["progress"]["updates"] == STEPS
    assert ran.report["metrics"]["validation/loss"] < 3.0
