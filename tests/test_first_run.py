"""The first things that a user does, through the command line: init, check, run, kill, resume, report, generate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: A corpus with a pattern that a tiny model learns in a few steps.
CORPUS = "".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(200))


def nlpkernel(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder` as a user would, with its caches there too."""
    done = subprocess.run(
        [sys.executable, "-m", "nlpkernel", *arguments],
        cwd=folder,
        env={**os.environ, "NLPKERNEL_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, and a run of twelve steps of the starter plan on it."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "corpus").mkdir()
    (folder / "corpus/functions.txt").write_text(CORPUS, encoding="utf-8")
    nlpkernel(folder, "init")
    small = [
        "extends = 'plan.toml'",
        "train = { steps = 12, batch = 4, evaluate = { every = 6 }, log = { every = 3 } }",
        "data = { use = 'nlpkernel-plugin-text:text', paths = ['corpus/*.txt'], window = 32,"
        "format = { use = 'auto', documents = 'blank' },"
        " tokenizer = 'bytes' }",
        "model = { layers = 1, width = 32, heads = 2, dropout = 0.1 }",
        "checkpoint = { every = 4, keep = { last = 9 } }",
    ]
    (folder / "small.toml").write_text("\n".join(small), encoding="utf-8")
    nlpkernel(folder, "run", "small.toml")
    return folder


def events(run: Path, kind: str) -> list[dict[str, object]]:
    lines = (run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_the_starter_plan_has_no_mistakes_and_init_writes_over_nothing(folder: Path) -> None:
    done = nlpkernel(folder, "check", "plan.toml")
    assert "no mistakes" in done.stdout
    assert "parameters" in done.stdout
    assert "NK309" in nlpkernel(folder, "init", code=2).stderr


def test_the_held_out_loss_falls(folder: Path) -> None:
    losses = [event["metrics"]["loss"] for event in events(folder / "runs/first", "Evaluated")]  # type: ignore[index]
    assert losses[-1] < losses[0]


def test_a_run_folder_holds_what_ran(folder: Path) -> None:
    run = folder / "runs/first"
    lock = json.loads((run / "lock.json").read_text())
    used = {each["address"]: each["distribution"] for each in lock["activated"]["components"]}
    assert used["data.tokenizer"] == "nlpkernel-plugin-text"
    assert used["optimizer.schedule"] == "nlpkernel-plugin-optim"
    assert (folder / "runs/latest").resolve() == run.resolve()
    assert "finished" in nlpkernel(folder, "report", "runs/latest").stdout
    assert json.loads(nlpkernel(folder, "runs", "--json").stdout)[0]["status"] == "finished"


def test_a_second_run_of_the_name_is_refused(folder: Path) -> None:
    assert "NK301" in nlpkernel(folder, "run", "small.toml", code=2).stderr


def test_check_data_shows_what_was_read(folder: Path) -> None:
    out = nlpkernel(folder, "check", "small.toml", "--data").stdout
    assert "200 documents" in out or "documents" in out
    assert "sample 0" in out


def test_a_dry_run_keeps_nothing(folder: Path) -> None:
    done = nlpkernel(folder, "run", "small.toml", "--dry-run", "--set", "name=rehearsal")
    assert "the full run would take" in done.stdout
    assert not (folder / "runs/rehearsal").exists()


def test_generate_prints_a_sample_that_repeats_itself(folder: Path) -> None:
    command = ["generate", "runs/first", "--prompt", "def f1(", "--tokens", "20", "--seed", "3"]
    first = nlpkernel(folder, *command).stdout
    assert first.startswith("def f1(")
    assert nlpkernel(folder, *command).stdout == first


def test_a_resumed_run_ends_with_the_same_weights_bit_for_bit(folder: Path) -> None:
    nlpkernel(folder, "run", "small.toml", "--set", "name=resumed")
    nlpkernel(folder, "versions", "tag", "runs/resumed", "12", "whole")
    nlpkernel(folder, "resume", "runs/resumed", "--from", "4")
    listed = json.loads(nlpkernel(folder, "versions", "runs/resumed", "--json").stdout)
    whole, resumed = [version["name"] for version in listed if version["step"] == 12]
    out = nlpkernel(folder, "versions", "diff", "runs/resumed", whole, resumed, "--json").stdout
    told = json.loads(out)
    assert told.pop("same") > 40
    assert told == {"a": whole, "b": resumed, "leaves": [], "changes": []}
    assert resumed == next(version["name"] for version in listed if version["head"])


def test_the_example_of_make_run_has_no_mistakes() -> None:
    nlpkernel(ROOT, "check", "examples/first.toml")
