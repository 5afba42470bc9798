"""Runs of the command line under supervision, with everything that a run has."""

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

import msgpack
import pytest

from nlpkernel import runs
from nlpkernel.cli import main
from nlpkernel.errors import PluginError, TrainingError, UsageError
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.plan import Plan
from nlpkernel.report import Report
from nlpkernel.supervise.launch import commands, supervise, wanted
from nlpkernel.supervise.post import Post, take_post
from nlpkernel_sdk import tiny_values

PARTS = Path(__file__).parent / "parts" / "ranks.py"


def use(name: str, **settings: Any) -> dict[str, Any]:
    return {"use": f"{PARTS}:{name}", **settings}


def values(*, train: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A tiny plan whose process imports nothing of torch's compiler, which would cost each of them seconds."""
    return tiny_values(train={"deterministic": False, **train}, optimizer=use("Light"), **sections)


class Command:
    """`nlpkernel` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder / "runs/tiny"
        self.mark = f"nlpkernel-test={folder}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nlpkernel", *arguments],
            cwd=folder,
            env={**os.environ, "NLPKERNEL_TEST": self.mark, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output

    @property
    def log(self) -> str:
        path = self.folder / "logs/run.log"
        return path.read_text() if path.exists() else ""

    def worker(self, rank: int = 0) -> int:
        return int(re.findall(rf"worker-{rank} started as process (\d+)", self.log)[-1])

    def step(self, rank: int = 0) -> int:
        path = self.folder / f"step-{rank}"
        return int(path.read_text() or 0) if path.exists() else 0


@pytest.fixture
def nlpkernel(tmp_path: Path, alive: Callable[[str], list[str]]) -> Iterator[Callable[..., Command]]:
    """Start a command on a plan; what a test leaves of it is killed."""
    made: list[Command] = []

    def start(*arguments: str, **sections: Any) -> Command:
        if sections:
            (tmp_path / "plan.json").write_text(json.dumps(values(**sections)))
        made.append(Command(tmp_path, *arguments))
        return made[-1]

    yield start
    for each in made:
        for line in alive(each.mark):
            os.kill(int(line.partition(" ")[0]), signal.SIGKILL)
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


def weights(folder: Path, rank: int = 0) -> bytes:
    """The tensors of the newest version: model, moments, random state."""
    path = max((folder / f"shelf-{rank}").glob("step-*"))
    content: bytes = msgpack.unpackb(path.read_bytes())[0]
    return content


def test_case_p4_a_run_that_dies_and_is_stuck_goes_on_by_itself_and_comes_to_the_same_end(
    nlpkernel, alive, tmp_path
):
    """Killed before its first version: it begins anew. Stuck, while its thread beats: it goes on from the newest."""
    plan: dict[str, Any] = {
        "train": {"steps": 12, "evaluate": {"every": 5}, "stall": "15s"},
        "model": {"hidden": 4, "dropout": 0.5},
        "checkpoint": use("Shelves", every=4),
    }
    monitors = [use("Trouble", what="die", step=3), use("Trouble", what="hang", step=7), use("Nanny")]
    command = nlpkernel("run", "plan.json", "--restarts", "2", "-q", monitor=monitors, **plan)
    code, output = command.end()
    assert code == 0, output
    assert alive(command.mark) == []
    # What it did is known from its last beat, up to a second ago.
    assert re.search(r"worker-0 was killed by SIGKILL (in step \d|while opening the run)", output), output
    stuck = r"worker-0 is stuck in step 7: it has not got on for \d+ s; it is at (\S+):\d+ in (\w+); restart 2 of 2"
    found = re.search(stuck, output)
    assert found is not None, output
    assert found.groups() == (str(PARTS), "gradients_ready")
    log = command.log
    assert "no version was complete, so the run begins anew" in log
    assert re.search(r"worker-0 #\d+ Restarted step=4 .*number=2 reason='worker-0 is stuck in step 7", log)
    assert log.count("RunStarted") == 3
    assert log.rstrip().endswith("finished")
    report = Report.read(command.folder / "report.json")
    assert (report.status, report.progress.step) == ("finished", 12)
    assert [(each.what, each.number) for each in report.counts] == [("restarts", 2)]
    assert (command.folder.parent / "latest").exists()
    # In this process, with the same plan and no trouble.
    (tmp_path / "plan.json").write_text(json.dumps(values(monitor=[use("Pace")], **plan)))
    unbroken = tmp_path / "unbroken"
    assert main(["run", str(tmp_path / "plan.json"), "--runs", str(unbroken), "-q"]) == 0
    assert weights(command.folder) == weights(unbroken / "tiny")


def test_several_workers_are_started_again_together_and_stop_after_the_same_step(
    nlpkernel, alive, wait_for, capsys
):
    command = nlpkernel(
        "run",
        "plan.json",
        "--restarts",
        "1",
        "-q",
        train={"steps": 100_000},
        communicator=use("Ranks"),
        checkpoint=use("Shelves", every=5),
        monitor=[use("Pace", seconds=0.05)],
    )
    wait_for(lambda: all(command.step(rank) > 5 for rank in range(2)), "step 5 of both")
    # Meanwhile the run is nobody else's.
    assert main(["resume", str(command.folder)]) == 2
    assert (
        f"NK311 the run {str(command.folder)!r} is in use by process {command.process.pid} on "
        in capsys.readouterr().err
    )
    plan = str(command.folder.parent.parent / "plan.json")
    assert main(["run", plan, "--runs", str(command.folder.parent), "--overwrite"]) == 2
    assert "NK311" in capsys.readouterr().err
    assert (command.folder / "plan.toml").exists()
    first = {rank: command.worker(rank) for rank in range(2)}
    os.kill(first[1], signal.SIGKILL)
    wait_for(lambda: command.log.count(" Restarted ") == 2, "the restart of both")
    assert command.worker(0) != first[0]
    done = [command.step(rank) for rank in range(2)]
    wait_for(lambda: all(command.step(rank) > done[rank] + 2 for rank in range(2)), "more steps of both")
    command.process.send_signal(signal.SIGTERM)
    code, output = command.end()
    assert code == 143, output
    assert command.step(0) == command.step(1)
    for rank in range(2):
        newest = max((command.folder / f"shelf-{rank}").glob("step-*"))
        assert newest.name == f"step-{command.step(rank):04d}"
        assert f"worker-{rank} #" in command.log
        assert (command.folder / f"logs/rank-{rank}.log").exists()
    assert Report.read(command.folder / "report.json").status == "interrupted"
    assert alive(command.mark) == []


def test_case_p4_kill_9_of_the_supervisor_ends_a_run_and_the_children_of_its_components(
    nlpkernel, alive, wait_for
):
    monitors = [use("Pace", seconds=0.01), use("Nanny")]
    command = nlpkernel(
        "run", "plan.json", "--restarts", "1", "-q", train={"steps": 10_000}, monitor=monitors
    )
    wait_for(lambda: command.step() > 10, "step 10")
    assert sum("time.sleep(600)" in line for line in alive(command.mark)) == 2
    command.process.kill()
    wait_for(lambda: not alive(command.mark), "the end of all", 5.0)


@pytest.mark.parametrize(
    ("ends", "expected", "kept"), [("exit 2", 2, False), ("exit 1", 1, False), ("kill -9 $$", 1, True)]
)
def test_a_run_that_was_never_opened_leaves_a_folder_only_where_it_tells_something(
    tmp_path, ends, expected, kept
):
    """As without a supervisor: what a process has told itself is no reason for a folder that is in the way."""
    folder = tmp_path / "tiny"
    spec = ProcessSpec(name="worker-0", rank=0, command=("sh", "-c", ends))
    plan = Plan.of(tiny_values())
    try:
        code = supervise(plan, folder, [spec], [], restarts=0, say=print, new=True)
    except TrainingError as error:
        code = error.exit_code
    assert code == expected
    assert folder.exists() == kept


def test_processes_that_do_not_fit_together_are_refused_by_name():
    plan = Plan.of(tiny_values(communicator=use("Ranks", same=True)))
    with pytest.raises(PluginError, match=r"NK605 .*worker-0 \(rank 0\), worker-1 \(rank 0\) \[Ranks of"):
        wanted(plan, Path("nowhere"))


def test_a_communicator_may_want_this_process_alone():
    assert wanted(Plan.of(tiny_values(communicator=use("Ranks", workers=0))), Path("nowhere")) == ()
    assert wanted(Plan.of(tiny_values()), Path("nowhere")) == ()


def test_a_run_in_use_is_not_replaced(tmp_path):
    folder = tmp_path / "tiny"
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.toml").touch()
    with runs.claim(folder), pytest.raises(UsageError, match="NK311"):
        runs.create(folder, overwrite=True)
    assert (folder / "plan.toml").exists()
    runs.create(folder, overwrite=True)
    assert not (folder / "plan.toml").exists()


@pytest.mark.parametrize("text", ["-1", "x"])
def test_a_number_of_restarts_that_is_none_is_refused(text, capsys):
    assert main(["run", "plan.toml", "--restarts", text]) == 2
    assert "--restarts" in capsys.readouterr().err


def test_a_channel_that_is_none_is_refused(monkeypatch):
    for number in ("999", "x"):
        monkeypatch.setenv("NLPKERNEL_CHANNEL", number)
        with pytest.raises(UsageError, match=rf"NK606 NLPKERNEL_CHANNEL={number} names no channel"):
            take_post()


def test_a_process_that_nobody_supervises_has_a_post_that_asks_nothing(tmp_path):
    assert take_post() is None
    post = Post()
    assert (post.rank, post.world, post.supervised, post.restart) == (0, 1, False, None)
    assert post.launch != Post().launch
    with post.manned(tmp_path):
        assert [post.due(7, None), post.due(8, 15)] == [None, 15]
    assert list(tmp_path.iterdir()) == []


def test_later_starts_resume_from_the_newest_version_and_not_from_an_older_one_that_was_named(monkeypatch):
    folder = Path("runs/tiny")
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    new = commands(folder, ["run", "plan.toml", "--set", "name=tiny", "-q"], ["-q"], new=True)
    assert new(0, False) == [
        sys.executable,
        "-P",
        "-m",
        "nlpkernel",
        "run",
        "plan.toml",
        "--set",
        "name=tiny",
        "-q",
    ]
    assert new(1, False)[4:] == new(2, True)[4:] == ["resume", "runs/tiny", "-q"]
    old = commands(folder, ["resume", "runs/tiny", "--from", "v3", "-q"], ["-q"], new=False)
    assert old(0, False)[4:] == old(1, False)[4:] == ["resume", "runs/tiny", "--from", "v3", "-q"]
    assert old(1, True)[4:] == ["resume", "runs/tiny", "-q"]
    # What Python finds beside the user, it finds in the processes of the run too.
    monkeypatch.setattr(sys, "path", [str(Path.cwd())])
    assert "-P" not in commands(folder, ["run"], [], new=True)(0, False)
