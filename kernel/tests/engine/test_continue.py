"""`run --continue`: a launcher repeats the words of the first start, whatever became of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.cli import main
from nlpkernel.report import Report
from nlpkernel_sdk import tiny_values

RANKS = Path(__file__).parents[1] / "supervise/parts/ranks.py"


def write(bench: Any, folder: Path, **sections: Any) -> str:
    values = tiny_values(
        **{
            "train": {"steps": 6},
            # Another one imports the compiler of torch, which costs each process seconds.
            "optimizer": {"use": f"{RANKS}:Light"},
            "model": {"hidden": 4, "dropout": 0.5},
            "checkpoint": bench.use("Shelf", every=2),
            **sections,
        }
    )
    values["train"]["deterministic"] = False
    (folder / "plan.json").write_text(json.dumps(values))
    return str(folder / "plan.json")


@pytest.mark.parametrize("supervised", [False, True])
def test_the_same_words_begin_a_run_and_continue_it(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervised: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ["--restarts", "1"] if supervised else []
    words = ["run", write(bench, tmp_path, train={"steps": 4}), "-q", "--continue", *more]
    assert main(words) == 0
    report = Report.read(tmp_path / "runs/tiny/report.json")
    assert (report.status, report.progress.step) == ("finished", 4)
    write(bench, tmp_path, train={"steps": 6})
    assert main(words) == 0
    continued = Report.read(tmp_path / "runs/tiny/report.json")
    assert continued.progress.step == 6
    assert continued.reason == ""
    # The whole run at once comes to the same.
    assert main(["run", "plan.json", "-q", "--runs", "whole"]) == 0
    assert Report.read(tmp_path / "whole/tiny/report.json").metrics == continued.metrics


def test_a_run_that_was_killed_before_its_first_version_begins_anew_and_says_so(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", write(bench, tmp_path), "-q", "--continue"]
    folder = tmp_path / "runs/tiny"
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.toml").write_text("name = 'tiny'\n")
    assert main(words) == 0
    assert Report.read(folder / "report.json").progress.step == 6
    assert "no version was complete, so the run begins anew" in (folder / "logs/rank-0.log").read_text()


def test_a_run_that_is_finished_stays_as_it_is(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", write(bench, tmp_path), "-q", "--continue"]
    assert main(words) == 0
    versions = sorted((tmp_path / "runs/tiny").rglob("step-*"))
    assert main(words) == 0
    assert Report.read(tmp_path / "runs/tiny/report.json").reason == "all 6 steps were done before"
    assert sorted((tmp_path / "runs/tiny").rglob("step-*")) == versions


@pytest.mark.parametrize(
    ("options", "sections", "code"),
    [(["--overwrite"], {}, "NK313"), (["--dry-run"], {}, "NK313"), ([], {"checkpoint": None}, "NK304")],
)
def test_what_it_cannot_mean_is_refused(
    bench: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sections: dict[str, Any],
    code: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", write(bench, tmp_path, **sections), "--continue", *options]) == 2
    assert code in capsys.readouterr().err
    assert not (tmp_path / "runs/tiny").exists()
