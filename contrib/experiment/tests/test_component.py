"""What the book holds of runs that end, are killed, go on, and run beside each other."""

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import nlpkernel
from nlpkernel.errors import UsageError
from nlpkernel.events import Evaluated, Logged, RunEnded, RunStarted
from nlpkernel.progress import Progress
from nlpkernel_experiment.codes import CODES
from nlpkernel_experiment.commit import commit_of
from nlpkernel_experiment.component import Experiment
from nlpkernel_experiment.entry import Entry
from nlpkernel_experiment.files import append
from nlpkernel_experiment.reading import differing, entries, flat
from nlpkernel_sdk import tiny_plan, tiny_values
from nlpkernel_sdk.light import brought, faults_of_codes, without_help
from nlpkernel_sdk.testing import make_run

BOOK = {"use": "experiment", "interval": 0.0}


def plan(**sections):
    return tiny_plan(**{"train": {"steps": 6, "evaluate": {"every": 2}}, "monitor": [BOOK], **sections})


def started(folder, step=0, **values):
    known = {
        "time": 1000.0 + step,
        "name": "tiny",
        "folder": str(folder),
        "start": Progress(step=step),
        "steps": 9,
        "steps_per_epoch": None,
        "parameters": 5,
        "device": "cpu",
        "precision": "fp32",
        "world": 1,
    }
    return RunStarted(**{**known, **values})


def evaluated(step, loss, best):
    return Evaluated(
        time=0.0,
        progress=Progress(step=step),
        split="validation",
        metrics={"loss": loss},
        samples=1,
        seconds=0.0,
        best=best,
    )


def lines(root):
    return [json.loads(line) for line in (root / "index.jsonl").read_text(encoding="utf-8").splitlines()]


def test_an_entry_says_what_ran_and_what_it_came_to(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("0123abcd\n")
    monkeypatch.chdir(tmp_path)
    report = nlpkernel.run(plan(), runs_folder="runs")
    (entry,) = entries(tmp_path / "runs/experiments")
    assert (entry["name"], entry["status"], entry["steps"]) == ("tiny", "finished", 6)
    assert entry["progress"] == report.progress._asdict()
    assert entry["best"] == {"step": report.best_step, "metrics": {"validation/loss": report.best}}
    assert entry["metrics"]["validation/loss"] == report.metrics["validation/loss"]
    assert {"loss", "norm", "rate"} <= entry["metrics"].keys()
    (start,) = entry["starts"]
    lock = (tmp_path / "runs/tiny/lock.json").read_bytes()
    assert start["lock"] == hashlib.sha256(lock).hexdigest()
    assert (start["commit"], start["from"], start["process"]) == ("0123abcd", 0, os.getpid())
    assert start["time"] <= start["ended"]
    assert entry["settings"]["train.steps"] == 6
    assert [(each["what"], each["status"]) for each in lines(tmp_path / "runs/experiments")] == [
        ("started", "running"),
        ("ended", "finished"),
    ]


def test_a_run_that_goes_on_stays_running_until_it_ends(tmp_path):
    events = nlpkernel.train(plan(), runs_folder=tmp_path)
    for event in events:
        if isinstance(event, Logged) and event.progress.step == 3:
            (entry,) = entries(tmp_path / "experiments")
            assert (entry["status"], entry["progress"]["step"]) == ("running", 3)
    (entry,) = entries(tmp_path / "experiments")
    assert entry["status"] == "finished"


KILLER = """
import os, signal
from pathlib import Path
from nlpkernel import component, hookimpl
from nlpkernel.events import Logged

@component
class Killer:
    @hookimpl
    def subscribe(self, run, bus):
        bus.on(Logged, lambda event: self.look(event.progress.step))

    def look(self, step):
        if step == 5 and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_was_killed_is_lost_and_goes_on_in_its_entry(tmp_path, monkeypatch):
    pytest.importorskip("nlpkernel_store")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "killer.py").write_text(KILLER, encoding="utf-8")
    values = tiny_values(
        train={"steps": 8, "evaluate": {"every": 1}},
        monitor=[BOOK, {"use": "./killer.py:Killer"}],
        checkpoint={"use": "store", "every": 2, "asynchronous": False},
    )
    (tmp_path / "plan.json").write_text(json.dumps(values), encoding="utf-8")
    command = [sys.executable, "-m", "nlpkernel"]
    done = subprocess.run([*command, "run", "plan.json", "-q"], timeout=120)
    assert done.returncode == -9
    (lost,) = entries(tmp_path / "runs/experiments")
    assert (lost["status"], lost["progress"]["step"]) == ("lost", 5)
    assert (
        json.loads((tmp_path / "runs/experiments" / lost["entry"] / "entry.json").read_text())["status"]
        == "running"
    )

    subprocess.run([*command, "resume", "runs/tiny", "-q"], timeout=120, check=True)
    (entry,) = entries(tmp_path / "runs/experiments")
    assert entry["entry"] == lost["entry"]
    assert entry["status"] == "finished"
    assert [(each["from"], each["status"]) for each in entry["starts"]] == [(0, "lost"), (4, "finished")]
    kept = json.loads((tmp_path / "runs/experiments" / entry["entry"] / "evaluations.json").read_text())
    assert [each["step"] for each in kept] == list(range(1, 9))


def test_a_run_that_replaces_another_has_an_entry_of_its_own(tmp_path):
    for _ in range(2):
        nlpkernel.run(plan(), runs_folder=tmp_path, overwrite=True)
    first, second = entries(tmp_path / "experiments")
    assert first["entry"] != second["entry"]
    assert first["status"] == second["status"] == "finished"


def test_a_run_that_fails_says_why(tmp_path):
    with pytest.raises(nlpkernel.errors.TrainingError):
        nlpkernel.run(plan(data={"poisoned": list(range(64))}), runs_folder=tmp_path)
    (entry,) = entries(tmp_path / "experiments")
    assert entry["status"] == "failed"
    assert "NK403" in entry["reason"]


def test_evaluations_after_a_roll_back_take_the_place_of_the_old(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "plan.toml").write_text('name = "tiny"\n', encoding="utf-8")
    entry = Entry(tmp_path / "book", started(folder), 0.0)
    for step, loss, best in ((2, 3.0, True), (4, 2.0, True), (6, float("nan"), False), (4, 2.5, True)):
        entry.evaluated(evaluated(step, loss, best))
    entry.close()
    (read,) = entries(tmp_path / "book")
    kept = json.loads((entry.folder / "evaluations.json").read_text())
    assert [(each["step"], each["metrics"]["validation/loss"]) for each in kept] == [(2, 3.0), (4, 2.5)]
    assert read["best"] == {"step": 4, "metrics": {"validation/loss": 2.5}}
    # Taken up from a version of before that.
    again = Entry(tmp_path / "book", started(folder, step=3), 0.0)
    again.close()
    assert again.folder == entry.folder
    (read,) = entries(tmp_path / "book")
    assert read["best"] == {"step": 2, "metrics": {"validation/loss": 3.0}}


def test_a_number_that_is_not_finite_is_kept_as_a_word(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "plan.toml").write_text('name = "tiny"\n', encoding="utf-8")
    entry = Entry(tmp_path / "book", started(folder), 0.0)
    entry.evaluated(evaluated(2, float("inf"), True))
    entry.close()
    text = (entry.folder / "entry.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["metrics"] == {"validation/loss": "Infinity"}


def test_only_the_first_worker_writes(tmp_path):
    run, component = make_run(tmp_path / "runs/tiny"), Experiment()
    run.ask(component, "subscribe", bus=run.bus)
    run.rank = 1
    run.bus.publish(started(tmp_path / "runs/tiny"))
    run.bus.publish(evaluated(1, 1.0, True))
    run.bus.publish(RunEnded(time=0.0, progress=Progress(), status="finished", reason="", seconds=0.0))
    assert run.bus.failures == {}
    assert list((tmp_path / "runs/experiments").iterdir()) == []


def test_lines_of_many_writers_are_whole(tmp_path):
    path = tmp_path / "index.jsonl"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: append(path, {"number": number, "text": "x" * 3000}), range(80)))
    assert sorted(each["number"] for each in lines(tmp_path)) == list(range(80))


def test_half_a_line_spoils_no_other(tmp_path):
    path = tmp_path / "index.jsonl"
    path.write_text('{"number": 1}\n{"num', encoding="utf-8")
    append(path, {"number": 2})
    assert path.read_text(encoding="utf-8") == '{"number": 1}\n{"num\n{"number": 2}\n'


def test_a_book_that_cannot_be_made_is_told_of_before_the_run(tmp_path):
    (tmp_path / "experiments").touch()
    with pytest.raises(UsageError, match="cannot be made") as caught:
        nlpkernel.run(plan(), runs_folder=tmp_path)
    assert caught.value.problems[0].code == "EXP001"
    assert not (tmp_path / "tiny").exists()


def test_the_commit_is_found_wherever_git_keeps_it(tmp_path):
    repository, below = tmp_path / "repository", tmp_path / "repository/a/b"
    below.mkdir(parents=True)
    assert commit_of(tmp_path / "nowhere") is None
    git = repository / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(below) is None
    (git / "packed-refs").write_text("# pack-refs\n1111 refs/heads/other\n2222 refs/heads/main\n^3333\n")
    assert commit_of(below) == "2222"
    (git / "refs/heads/main").write_text("4444\n")
    assert commit_of(below) == "4444"
    (git / "worktrees/w").mkdir(parents=True)
    (git / "worktrees/w/HEAD").write_text("ref: refs/heads/main\n")
    (git / "worktrees/w/commondir").write_text("../..\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {git / 'worktrees/w'}\n")
    assert commit_of(tree) == "4444"


def test_settings_that_differ_are_named_once():
    plans = [
        {"name": "a", "optimizer": {"lr": 0.1, "betas": [0.9, 0.95]}, "monitor": [{"use": "x"}]},
        {
            "name": "b",
            "optimizer": {"lr": 0.2, "betas": [0.9, 0.95]},
            "monitor": [{"use": "x"}, {"use": "y"}],
        },
    ]
    assert differing([{"settings": dict(flat(each))} for each in plans]) == ["optimizer.lr", "monitor[1].use"]


def test_it_is_light_and_says_what_its_settings_and_codes_are():
    import nlpkernel_experiment

    modules = ["nlpkernel_experiment.component", "nlpkernel_experiment.command"]
    assert not brought(modules, ["torch", "numpy", "filelock", "tomllib"])
    assert without_help(Experiment) == []
    assert faults_of_codes(nlpkernel_experiment, CODES) == []
