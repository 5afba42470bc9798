"""Runs of the command line with a server: what the kernel gives it, and what becomes of both."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.engine.proof import prove
from nlpkernel.engine.serving import serve
from nlpkernel.engine.signals import Dismissal
from nlpkernel.errors import PluginError, UsageError
from nlpkernel.plan import Plan
from nlpkernel.report import Report
from nlpkernel.supervise.launch import wanted
from nlpkernel.supervise.post import Post
from nlpkernel_sdk import tiny_values

PARTS = Path(__file__).parent / "parts"
SERVED = f"{PARTS / 'served.py'}:Served"
RANKS = f"{PARTS / 'ranks.py'}"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets without a file")


class Run:
    """`nlpkernel run` in a process of its own."""

    def __init__(self, folder: Path, *words: str, steps: int, pace: float, trouble: str = "") -> None:
        values = tiny_values(
            train={"steps": steps, "deterministic": False},
            optimizer={"use": f"{RANKS}:Light"},
            communicator={"use": SERVED, "trouble": trouble},
            checkpoint={"use": f"{RANKS}:Shelves"},
            monitor=[{"use": f"{RANKS}:Pace", "seconds": pace}],
        )
        (folder / "plan.json").write_text(json.dumps(values))
        self.folder = folder / "runs/tiny"
        self.mark = f"nlpkernel-test={folder}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nlpkernel", "run", "plan.json", "-q", *words],
            cwd=folder,
            env={**os.environ, "NLPKERNEL_TEST": self.mark, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def log(self) -> str:
        return "\n".join(self.lines("logs/run.log"))

    @property
    def served(self) -> list[dict[str, Any]]:
        """What each process of the server told of itself."""
        return [json.loads(line) for line in self.lines("served")]

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output


@pytest.fixture
def run(tmp_path: Path, alive: Callable[[str], list[str]]) -> Iterator[Callable[..., Run]]:
    """Start runs; what a test leaves of one is killed."""
    made: list[Run] = []

    def start(*words: str, steps: int = 10_000, pace: float = 0.02, trouble: str = "") -> Run:
        made.append(Run(tmp_path, *words, steps=steps, pace=pace, trouble=trouble))
        return made[-1]

    yield start
    for each in made:
        for line in alive(each.mark):
            os.kill(int(line.partition(" ")[0]), signal.SIGKILL)
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


def test_a_server_that_is_killed_comes_back_by_itself_and_the_worker_goes_on(run, wait_for, alive):
    started = run("--restarts", "1", steps=150)
    wait_for(lambda: len(started.lines("answers")) > 3, "some updates")
    # What the command line named may be another plan by now; the server has to get that of the run.
    (started.folder.parent.parent / "plan.json").write_text("{")
    (first,) = started.served
    os.kill(first["pid"], signal.SIGKILL)
    code, output = started.end()
    assert code == 0, output
    assert re.search(r"server-0 was killed by SIGKILL .*; restart 1 of 1 of server-0 alone in 1 s", output)
    _, second = started.served
    assert [line.split()[0] for line in started.lines("answers")] == [str(number) for number in range(150)]
    assert {line.split()[1] for line in started.lines("answers")} == {str(first["pid"]), str(second["pid"])}
    log = started.log
    assert [log.count(f"{name} started as process") for name in ("worker-0", "server-0")] == [1, 2]
    assert log.count("RunStarted") == 1
    assert "supervisor" in log
    for told in (first, second):
        expected = {"process": "server-0", "rank": -1, "world": 1, "phase": "serving", "group": True}
        assert {name: told[name] for name in expected} == expected
        assert told["launch"] == first["launch"]
        assert (told["peaks"], told["factors"]) == ([0.01], [1.0] * 4)
    assert first["words"][0] == "run"
    assert second["words"] == ["resume", "runs/tiny", "-q"]
    # Both of its processes wrote one log; the second was told to end, and closed what it held.
    assert sum("the server listens" in line for line in started.lines("logs/server-0.log")) == 2
    assert sum("server-0 #" in line and "the server listens" in line for line in log.splitlines()) == 2
    assert started.lines("left") == [str(second["pid"])]
    assert (started.folder / "closed-server-0").exists()
    assert "processes that were left" not in log
    assert Report.read(started.folder / "report.json").status == "finished"
    assert alive(started.mark) == []


def test_without_restarts_the_loss_of_a_server_ends_the_run(run, wait_for, alive):
    started = run()
    wait_for(lambda: len(started.lines("answers")) > 3, "some updates")
    os.kill(started.served[0]["pid"], signal.SIGKILL)
    code, output = started.end()
    assert code == 1
    assert re.search(
        r"error: NK601 server-0 was killed by SIGKILL .* `--restarts N` does so by itself", output
    )
    assert alive(started.mark) == []


@pytest.mark.parametrize("whom", ["supervisor", "server"])
def test_a_signal_ends_the_run_saved_and_the_server_after_it(run, wait_for, alive, whom):
    started = run(pace=0.05)
    wait_for(lambda: len(started.lines("answers")) > 3, "some updates")
    os.kill(started.process.pid if whom == "supervisor" else started.served[0]["pid"], signal.SIGTERM)
    code, output = started.end()
    assert (code, output) == (143, "")
    assert Report.read(started.folder / "report.json").status == "interrupted"
    newest = max((started.folder / "shelf-0").glob("step-*"))
    assert newest.name == f"step-{len(started.lines('answers')):04d}"
    assert started.lines("left") == [str(started.served[0]["pid"])]
    assert (started.folder / "closed-server-0").exists()
    assert "server-0 ended" not in started.log, "it was ended with the others, not lost"
    assert alive(started.mark) == []


def test_a_server_that_raises_says_why_and_ends_the_run(run, alive):
    started = run(trouble="raise")
    code, output = started.end()
    assert code == 1
    owner = "[Served of "
    assert f"error: NK060 serve failed: ValueError: it cannot serve {owner}" in output
    assert (started.folder / "closed-server-0").exists() or not started.folder.exists()
    assert alive(started.mark) == []


def test_a_run_goes_on_without_a_server_that_has_done_its_part(run, wait_for, alive):
    started = run(trouble="leave")
    wait_for(lambda: "server-0 ended with exit code 0" in started.log, "the end of the server")
    assert (started.folder / "closed-server-0").exists()
    started.process.send_signal(signal.SIGTERM)
    assert started.end()[0] == 143
    assert alive(started.mark) == []


# -- in this process ------------------------------------------------------------------------------------------------


class Counter(Post):
    """The post of a server."""

    serves, name, rank, world = True, "server-0", -1, 2

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def asks(self, number: int) -> None:
        self.asked.append(number)


def plan(**communicator: Any) -> Plan:
    values = tiny_values(
        train={"threads": 3},
        optimizer={"use": "tiny", "kind": "sgd", "decay": "linear", "lr": 0.5},
        communicator={"use": SERVED, **communicator},
    )
    return Plan.of(values)


def test_what_serves_gets_the_optimizer_and_the_schedule_that_a_worker_would(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    serve(plan(trouble="leave"), tmp_path, Counter())
    told = json.loads((tmp_path / "served").read_text())
    assert (told["peaks"], told["factors"], told["threads"]) == ([0.5], [1.0, 0.75, 0.5, 0.25], 3)
    assert (told["process"], told["world"]) == ("server-0", 2)
    assert signal.getsignal(signal.SIGTERM) == before
    assert (tmp_path / "closed-server-0").exists()


def test_nothing_is_served_where_the_end_was_said_before(tmp_path):
    post = Counter()
    post.dismissed = True
    serve(plan(trouble="raise"), tmp_path, post)
    assert not (tmp_path / "served").exists()
    assert (tmp_path / "closed-server-0").exists()


def test_a_signal_is_passed_on_until_the_end_is_said_and_ends_what_goes_on_afterwards():
    post, done = Counter(), []

    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)
        done.append("asked")
        post.dismissed = True
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            done.append("closed")
        done.append("went on")

    with Dismissal(post) as dismissal:
        dismissal.until(work)
        signal.raise_signal(signal.SIGTERM)
    assert done == ["asked", "closed"]
    assert post.asked == [signal.SIGTERM, signal.SIGUSR1]


def test_an_exit_that_is_nobody_else_s_stays_one():
    with Dismissal(Counter()) as dismissal, pytest.raises(SystemExit, match="7"):
        dismissal.until(lambda: sys.exit(7))


def test_a_plan_whose_runs_are_not_alike_is_not_proved(tmp_path, monkeypatch):
    values = tiny_values(communicator={"use": SERVED}, checkpoint={"use": f"{RANKS}:Shelves"})
    plan = Plan.of(values)
    component = type(plan.compose().slot("communicator").component)
    monkeypatch.setattr(component, "unlike", "it rains", raising=False)
    with pytest.raises(UsageError, match="NK314 two unbroken runs of the plan differ already: it rains"):
        prove(plan, tmp_path, steps=3, kills=1, seed=1)


def test_a_server_whose_communicator_cannot_serve_is_refused_before_anything_starts(tmp_path):
    values = tiny_values(communicator={"use": f"{RANKS}:Ranks", "servers": 1})
    with pytest.raises(PluginError, match=r"NK605 it wants server-0, without a rank and a command"):
        wanted(Plan.of(values), Path("nowhere"))
    with pytest.raises(PluginError, match=r"NK605 server-0 is no worker"):
        serve(Plan.of(values), tmp_path, Counter())
